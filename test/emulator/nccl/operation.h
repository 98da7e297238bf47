// One collective or point-to-point operation, arguments checked, ready to run.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstddef>

#include "test/emulator/nccl/numeric.h"

namespace emu_nccl {

// AlltoAll, Gather and Scatter become sends and receives, as in NCCL.
enum class Function : unsigned {
  kAllReduce,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kSend,
  kRecv
};
const char* name_of(Function function);
inline bool is_point_to_point(Function f) { return f == Function::kSend || f == Function::kRecv; }
inline bool is_reduction(Function f) {
  return f == Function::kAllReduce || f == Function::kReduce || f == Function::kReduceScatter;
}

// ncclRedOp_t, resolved.
struct Reduction {
  unsigned shown = 0;  // ncclSum..ncclAvg, 5: premultiplied sum; what ranks must agree on
  Combine combine = Combine::kSum;
  bool scale = false;   // by `scalar`, or by what `scalar_address` holds when the operation runs
  bool divide = false;  // by the number of ranks, afterwards
  Scalar scalar;
  const void* scalar_address = nullptr;
};
const char* name_of_reduction(unsigned shown);

struct Operation {
  Function function = Function::kAllReduce;
  const void* send = nullptr;
  void* recv = nullptr;
  size_t count = 0;  // NCCL's: of one rank's block where there are blocks
  ncclDataType_t type = ncclInt8;
  Reduction reduction;
  int root = 0;  // or the peer
  CUstream stream = nullptr;

  size_t bytes() const { return count * size_of(type); }
};

}  // namespace emu_nccl
