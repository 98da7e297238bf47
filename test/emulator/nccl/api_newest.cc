// What NCCL 2.31 has and 2.28.9 lacks, as far as tests call it.
#include "shim/newer_nccl.h"
#include "test/emulator/nccl/api.h"
#include "test/emulator/nccl/call.h"
#include "test/emulator/nccl/group.h"
#include "test/emulator/nccl/lifecycle.h"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 2)  // else types are nccl.h's
using CollConfig = void;
#else
using CollConfig = ncclCollConfig_t;
#endif

EMU_NCCL_API(ncclResult_t, ncclAllReduceConfig, const void* sendbuff, void* recvbuff, size_t count,
             ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
             const CollConfig*) {
  return emu_nccl::perform({"ncclAllReduceConfig", comm, emu_nccl::Function::kAllReduce, sendbuff, recvbuff,
                            count, datatype, op, 0, stream});
}

EMU_NCCL_API(ncclResult_t, ncclCommGetUniqueId, ncclComm_t, ncclUniqueId* uniqueId) {
  return ncclGetUniqueId(uniqueId);
}

// A new rank has no `comm`; of the old ones, one has the id.
EMU_NCCL_API(ncclResult_t, ncclCommGrow, ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId,
             int rank, ncclComm_t* newcomm, ncclConfig_t* config) {
  if (comm == nullptr) {
    if (uniqueId == nullptr) return emu_nccl::fail_group(ncclInvalidArgument);
    return emu_nccl::make_from_id("ncclCommGrow", newcomm, nRanks, *uniqueId, rank, config);
  }
  if (nRanks <= comm->ranks) return emu_nccl::fail_group(ncclInvalidArgument);
  emu_nccl::ChildSpec spec{"ncclCommGrow"};
  spec.grown_ranks = nRanks;
  spec.id = uniqueId;
  return emu_nccl::make_child(comm, newcomm, config, spec);
}

EMU_NCCL_API(ncclResult_t, ncclCommSuspend, ncclComm_t comm, int flags) {
  if ((flags & NCCL_SUSPEND_MEM) == 0) return ncclSuccess;
  return emu_nccl::suspend(comm, true);
}

EMU_NCCL_API(ncclResult_t, ncclCommResume, ncclComm_t comm) { return emu_nccl::suspend(comm, false); }
