// The cap that `nccl-shunt tune` measured, so that it need not be measured again.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/protocol.h"
#include "shim/engine/measure.h"

namespace shunt {

// What the profile that fits this machine says of communicators of `ranks` ranks; nothing if there is none, or it
// does not say. A file that cannot be used is one error line. Looks once in a process for each number of ranks. Other
// ranks may come to another answer: it counts only if all come to the same. `nccl_version`: ncclGetVersion's.
std::optional<Found> cap_of_profile(uint32_t ranks, int nccl_version, Placement placement) noexcept;

}  // namespace shunt
