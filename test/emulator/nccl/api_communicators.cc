// Making and ending communicators, and asking about them: what every NCCL since 2.18 has.
#include <cstring>

#include "test/emulator/nccl/api.h"
#include "test/emulator/nccl/communicator.h"
#include "test/emulator/nccl/lifecycle.h"
#include "test/emulator/nccl/report.h"
#include "test/emulator/nccl/trace.h"

using emu_nccl::refuse;
using emu_nccl::trace_call;

EMU_NCCL_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId* uniqueId) {
  trace_call("ncclGetUniqueId", nullptr);
  if (uniqueId == nullptr) return refuse(ncclInvalidArgument, "GetUniqueId : out argument is NULL");
  emu_nccl::SegmentName name;
  if (!emu_nccl::make_segment(&name)) return refuse(ncclSystemError, "memfd_create failed");
  std::memset(uniqueId, 0, sizeof(*uniqueId));
  std::memcpy(uniqueId->internal, &name, sizeof(name));
  return ncclSuccess;
}

EMU_NCCL_API(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId commId,
             int rank) {
  return emu_nccl::make_from_id("ncclCommInitRank", comm, nranks, commId, rank, nullptr);
}

EMU_NCCL_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks,
             ncclUniqueId commId, int rank, ncclConfig_t* config) {
  return emu_nccl::make_from_id("ncclCommInitRankConfig", comm, nranks, commId, rank, config);
}

EMU_NCCL_API(ncclResult_t, ncclCommInitAll, ncclComm_t* comm, int ndev, const int* devlist) {
  return emu_nccl::make_all(comm, ndev, devlist);
}

EMU_NCCL_API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
             ncclConfig_t* config) {
  return emu_nccl::make_child(comm, newcomm, config, {"ncclCommSplit", color, key});
}

EMU_NCCL_API(ncclResult_t, ncclCommFinalize, ncclComm_t comm) { return emu_nccl::finalize(comm); }
EMU_NCCL_API(ncclResult_t, ncclCommDestroy, ncclComm_t comm) { return emu_nccl::destroy(comm); }
EMU_NCCL_API(ncclResult_t, ncclCommAbort, ncclComm_t comm) { return emu_nccl::abort(comm); }

EMU_NCCL_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t* asyncError) {
  trace_call("ncclCommGetAsyncError", comm);
  if (const auto bad = emu_nccl::check_comm(comm, "ncclGetAsyncError")) return bad;
  if (asyncError == nullptr)
    return refuse(ncclInvalidArgument, "ncclGetAsyncError : asyncError argument is NULL");
  *asyncError = comm->state.load();
  return ncclSuccess;
}

namespace {

ncclResult_t query(const char* name, ncclComm_t comm, int* out, int ncclComm::*field) {
  trace_call(name, comm);
  if (const auto bad = emu_nccl::check_comm(comm, name)) return bad;
  if (out == nullptr) return refuse(ncclInvalidArgument, std::string(name) + " : argument is NULL");
  if (const auto bad = emu_nccl::ensure_ready(comm)) return bad;
  *out = comm->*field;
  return ncclSuccess;
}

}  // namespace

EMU_NCCL_API(ncclResult_t, ncclCommCount, const ncclComm_t comm, int* count) {
  return query("ncclCommCount", comm, count, &ncclComm::ranks);
}
EMU_NCCL_API(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int* device) {
  return query("ncclCommCuDevice", comm, device, &ncclComm::device);
}
EMU_NCCL_API(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int* rank) {
  return query("ncclCommUserRank", comm, rank, &ncclComm::rank);
}
