// Collectives, point-to-point calls and reduction operators that every NCCL since 2.18 has.
#include <cstring>

#include "test/emulator/nccl/api.h"
#include "test/emulator/nccl/call.h"
#include "test/emulator/nccl/report.h"
#include "test/emulator/nccl/settings.h"
#include "test/emulator/nccl/trace.h"

using emu_nccl::Function;
using emu_nccl::perform;

EMU_NCCL_API(ncclResult_t, ncclAllReduce, const void* sendbuff, void* recvbuff, size_t count,
             ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  static const size_t kNullFrom = emu_nccl::settings().null_from;
  if (kNullFrom != SIZE_MAX && count * emu_nccl::size_of(datatype) >= kNullFrom) return ncclSuccess;
  return perform({"ncclAllReduce", comm, Function::kAllReduce, sendbuff, recvbuff, count, datatype,
                  op, 0, stream});
}

EMU_NCCL_API(ncclResult_t, ncclReduce, const void* sendbuff, void* recvbuff, size_t count,
             ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
             cudaStream_t stream) {
  const bool is_root = comm && comm->rank == root;
  return perform({"ncclReduce", comm, Function::kReduce, sendbuff, recvbuff, count, datatype, op,
                  root, stream, true, is_root});
}

EMU_NCCL_API(ncclResult_t, ncclBroadcast, const void* sendbuff, void* recvbuff, size_t count,
             ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream) {
  const bool is_root = comm && comm->rank == root;
  return perform({"ncclBroadcast", comm, Function::kBroadcast, sendbuff, recvbuff, count, datatype,
                  ncclSum, root, stream, is_root, true});
}

// By the public name, as in the real one: a library that took ncclBroadcast over sees this call
// too.
EMU_NCCL_API(ncclResult_t, ncclBcast, void* buff, size_t count, ncclDataType_t datatype, int root,
             ncclComm_t comm, cudaStream_t stream) {
  emu_nccl::trace_call("ncclBcast", comm);
  return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

EMU_NCCL_API(ncclResult_t, ncclReduceScatter, const void* sendbuff, void* recvbuff,
             size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
             cudaStream_t stream) {
  return perform({"ncclReduceScatter", comm, Function::kReduceScatter, sendbuff, recvbuff,
                  recvcount, datatype, op, 0, stream});
}

EMU_NCCL_API(ncclResult_t, ncclAllGather, const void* sendbuff, void* recvbuff, size_t sendcount,
             ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream) {
  return perform({"ncclAllGather", comm, Function::kAllGather, sendbuff, recvbuff, sendcount,
                  datatype, ncclSum, 0, stream});
}

EMU_NCCL_API(ncclResult_t, ncclSend, const void* sendbuff, size_t count, ncclDataType_t datatype,
             int peer, ncclComm_t comm, cudaStream_t stream) {
  return perform({"ncclSend", comm, Function::kSend, sendbuff, nullptr, count, datatype, ncclSum,
                  peer, stream, true, false});
}

EMU_NCCL_API(ncclResult_t, ncclRecv, void* recvbuff, size_t count, ncclDataType_t datatype,
             int peer, ncclComm_t comm, cudaStream_t stream) {
  return perform({"ncclRecv", comm, Function::kRecv, nullptr, recvbuff, count, datatype, ncclSum,
                  peer, stream, false, true});
}

EMU_NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum, ncclRedOp_t* op, void* scalar,
             ncclDataType_t datatype, ncclScalarResidence_t residence, ncclComm_t comm) {
  emu_nccl::trace_call("ncclRedOpCreatePreMulSum", comm);
  if (const auto bad = emu_nccl::check_comm(comm, "ncclRedOpCreatePreMulSum")) return bad;
  if (const auto bad = emu_nccl::ensure_ready(comm)) return bad;
  emu_nccl::UserOperator user{datatype, {}, nullptr};
  if (residence == ncclScalarHostImmediate) {
    const size_t size = emu_nccl::size_of(datatype);
    if (size == 0) return ncclInternalError;
    std::memcpy(user.scalar.bytes, scalar, size);
  } else {
    user.scalar_address = scalar;
  }
  // Numbers are of the process, so that an operator of another communicator is noticed, as NCCL
  // does by mixing the communicator's address in.
  static std::atomic<int> next{ncclNumOps};
  const int number = next.fetch_add(1);
  std::lock_guard lock(comm->mutex);
  comm->operators.emplace(number, user);
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

EMU_NCCL_API(ncclResult_t, ncclRedOpDestroy, ncclRedOp_t op, ncclComm_t comm) {
  emu_nccl::trace_call("ncclRedOpDestroy", comm);
  if (op >= 0 && op < ncclNumOps)
    return emu_nccl::refuse(ncclInvalidArgument, "ncclRedOpDestroy : operator is a NCCL builtin.");
  if (op < 0)
    return emu_nccl::refuse(ncclInvalidArgument, "ncclRedOpDestroy :  operator is garbage.");
  if (comm == nullptr)
    return emu_nccl::refuse(ncclInvalidArgument, "ncclRedOpDestroy : invalid communicator passed.");
  std::lock_guard lock(comm->mutex);
  if (comm->operators.erase(op) == 0) {
    return emu_nccl::refuse(ncclInvalidArgument,
                            "ncclRedOpDestroy : operator unknown to this communicator.");
  }
  return ncclSuccess;
}
