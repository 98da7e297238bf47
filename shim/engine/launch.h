// The one place where all-reduce kernels are launched.
#pragma once

#include "shim/engine/slab_set.h"

namespace shunt {

struct AllReduceCall {
  const void* send;  // `count` elements in device memory; any element alignment
  void* recv;
  size_t count;      // 1 .. cap / size_of(type)
  DataType type;
  ReduceOp op;
  cu::Stream stream;
};

// Enqueues one call. `number`: its place in the order of recording on the communicator. `timeout_ns`: 0,
// or how long a wait of the probe may last. The context of the set's device must be current.
cu::Result launch_all_reduce(const SlabSet& set, const DeviceLimits& limits, const AllReduceCall& call,
                             uint32_t number, uint64_t timeout_ns = 0);

}  // namespace shunt
