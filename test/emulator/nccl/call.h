// A collective or point-to-point call as the API gets it: checked, resolved, traced, submitted.
#pragma once

#include <nccl.h>

#include "test/emulator/nccl/communicator.h"

namespace emu_nccl {

struct Call {
  const char* name;  // of the API function
  ncclComm* comm;
  Function function;
  const void* send;
  void* recv;
  size_t count;
  int type;  // ncclDataType_t and ncclRedOp_t once checked: callers may pass any value
  int op = ncclSum;
  int root = 0;
  cudaStream_t stream = nullptr;
  bool reads = true;   // `send` must be there on this rank
  bool writes = true;  // `recv` too

  ncclDataType_t datatype() const { return static_cast<ncclDataType_t>(type); }
};

// NCCL's ncclEnqueueCheck, without and with the operation that follows.
ncclResult_t check_call(const Call& call);
ncclResult_t perform(const Call& call);

// AlltoAll, Gather, Scatter: the checked call becomes transfers of `call.count` elements in one
// group.
ncclResult_t send_block(const Call& call, size_t block, int peer);
ncclResult_t receive_block(const Call& call, size_t block, int peer);

}  // namespace emu_nccl
