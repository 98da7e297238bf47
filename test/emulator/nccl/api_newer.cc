// What NCCL 2.18 lacks and 2.28.9 has; left out of the older copy.
#include <cuda.h>

#include "test/emulator/nccl/api.h"
#include "test/emulator/nccl/call.h"
#include "test/emulator/nccl/driver.h"
#include "test/emulator/nccl/group.h"
#include "test/emulator/nccl/lifecycle.h"
#include "test/emulator/nccl/trace.h"

using emu_nccl::Call;
using emu_nccl::Function;

namespace {

// Transfers of one call start together, whatever the number.
template <typename Transfers>
ncclResult_t in_one_group(const Call& call, Transfers transfers) {
  EMU_NCCL_TRY(emu_nccl::check_call(call));
  if (call.count == 0) return ncclSuccess;
  emu_nccl::group_start();
  emu_nccl::fail_group(transfers());
  return emu_nccl::group_end();
}

}  // namespace

EMU_NCCL_API(ncclResult_t, ncclAlltoAll, const void* sendbuff, void* recvbuff, size_t count,
             ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  const Call call{"ncclAlltoAll", comm,     Function::kSend, sendbuff, recvbuff,
                  count,          datatype, ncclSum,         0,        stream};
  return in_one_group(call, [&] {
    for (int r = 0; r < comm->ranks; ++r) {
      EMU_NCCL_TRY(emu_nccl::send_block(call, static_cast<size_t>(r), r));
      EMU_NCCL_TRY(emu_nccl::receive_block(call, static_cast<size_t>(r), r));
    }
    return ncclSuccess;
  });
}

EMU_NCCL_API(ncclResult_t, ncclGather, const void* sendbuff, void* recvbuff, size_t count,
             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  const bool is_root = comm && comm->rank == root;
  const Call call{"ncclGather", comm, Function::kSend, sendbuff, recvbuff, count, datatype,
                  ncclSum,      root, stream,          true,     is_root};
  return in_one_group(call, [&] {
    EMU_NCCL_TRY(emu_nccl::send_block(call, 0, root));
    for (int r = 0; is_root && r < comm->ranks; ++r)
      EMU_NCCL_TRY(emu_nccl::receive_block(call, static_cast<size_t>(r), r));
    return ncclSuccess;
  });
}

EMU_NCCL_API(ncclResult_t, ncclScatter, const void* sendbuff, void* recvbuff, size_t count,
             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  const bool is_root = comm && comm->rank == root;
  const Call call{"ncclScatter", comm, Function::kSend, sendbuff, recvbuff, count, datatype,
                  ncclSum,       root, stream,          is_root,  true};
  return in_one_group(call, [&] {
    for (int r = 0; is_root && r < comm->ranks; ++r)
      EMU_NCCL_TRY(emu_nccl::send_block(call, static_cast<size_t>(r), r));
    return emu_nccl::receive_block(call, 0, root);
  });
}

EMU_NCCL_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* newcomm, int nranks, int myrank,
             int nId, ncclUniqueId* commIds, ncclConfig_t* config) {
  if (nId <= 0 || nId > nranks || commIds == nullptr)
    return emu_nccl::fail_group(ncclInvalidArgument);
  return emu_nccl::make_from_id("ncclCommInitRankScalable", newcomm, nranks, commIds[0], myrank,
                                config);
}

EMU_NCCL_API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excludeRanksList,
             int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  if (excludeRanksList == nullptr || excludeRanksCount <= 0)
    return emu_nccl::fail_group(ncclInvalidArgument);
  emu_nccl::ChildSpec spec{"ncclCommShrink"};
  spec.excluded = excludeRanksList;
  spec.excluded_count = excludeRanksCount;
  spec.abort_parent = (shrinkFlags & NCCL_SHRINK_ABORT) != 0;
  return emu_nccl::make_child(comm, newcomm, config, spec);
}

EMU_NCCL_API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags) {
  return emu_nccl::revoke(comm, revokeFlags);
}

EMU_NCCL_API(ncclResult_t, ncclGroupSimulateEnd, ncclSimInfo_t* simInfo) {
  emu_nccl::trace_call("ncclGroupSimulateEnd", nullptr);
  return emu_nccl::group_simulate_end(simInfo);
}

EMU_NCCL_API(ncclResult_t, ncclMemAlloc, void** ptr, size_t size) {
  emu_nccl::trace_call("ncclMemAlloc", nullptr);
  if (ptr == nullptr || size == 0) return ncclInvalidArgument;
  CUcontext context = nullptr;
  int device = 0;
  EMU_NCCL_TRY(emu_nccl::current_device(&context, &device));
  CUdeviceptr address = 0;
  EMU_NCCL_TRY(emu_nccl::check(cuMemAlloc(&address, size), "cuMemAlloc"));
  *ptr = reinterpret_cast<void*>(address);
  return ncclSuccess;
}

EMU_NCCL_API(ncclResult_t, ncclMemFree, void* ptr) {
  emu_nccl::trace_call("ncclMemFree", nullptr);
  if (ptr == nullptr) return ncclSuccess;
  return emu_nccl::check(cuMemFree(reinterpret_cast<CUdeviceptr>(ptr)), "cuMemFree");
}

EMU_NCCL_API(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void* buff, size_t size,
             void** handle) {
  emu_nccl::trace_call("ncclCommRegister", comm);
  EMU_NCCL_TRY(emu_nccl::check_comm(comm, "ncclCommRegister"));
  if (buff == nullptr || size == 0 || handle == nullptr) return ncclInvalidArgument;
  std::lock_guard lock(comm->mutex);
  comm->registrations.insert(buff);
  *handle = buff;
  return ncclSuccess;
}

EMU_NCCL_API(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void* handle) {
  emu_nccl::trace_call("ncclCommDeregister", comm);
  EMU_NCCL_TRY(emu_nccl::check_comm(comm, "ncclCommDeregister"));
  std::lock_guard lock(comm->mutex);
  if (handle && comm->registrations.erase(handle) == 0) return ncclInvalidUsage;
  return ncclSuccess;
}
