// The sizes that are timed where a cap is measured, so the caps that it can find.
#pragma once

#include <cstdint>

namespace shunt {

// Bytes, in this order; the first one at which NCCL wins ends it.
inline constexpr uint64_t kTimedSizes[] = {4 << 10,   16 << 10,  32 << 10,  64 << 10,  96 << 10, 128 << 10,
                                           192 << 10, 256 << 10, 384 << 10, 512 << 10, 768 << 10, 1 << 20};

}  // namespace shunt
