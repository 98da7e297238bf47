// The one place where all-reduce kernels are launched.
#pragma once

#include <span>

#include "shim/engine/slab_set.h"

namespace shunt {

struct AllReduceCall {
  const void* send;  // `count` elements in device memory; any element alignment
  void* recv;
  size_t count;  // 1 .. cap / size_of(type)
  DataType type;
  ReduceOp op;
  cu::Stream stream;
};

// How the kernel of these calls is launched.
LaunchPlan plan_all_reduce(std::span<const AllReduceCall> calls, const DeviceLimits& limits);

// Enqueues calls of one type and operation as one kernel on the first one's stream: at most
// kMaxMessages, together no more packets than a call of the cap has. `number`: the first one's
// place in the order of recording on the communicator. `timeout_ns`: 0, or how long a wait of the
// probe may last. The context of the set's device must be current.
cu::Result launch_all_reduce(const SlabSet& set, const DeviceLimits& limits,
                             std::span<const AllReduceCall> calls, uint32_t number,
                             uint64_t timeout_ns = 0);

}  // namespace shunt
