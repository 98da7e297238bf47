#include "test/emulator/nccl/call.h"

#include <string>

#include "test/emulator/nccl/driver.h"
#include "test/emulator/nccl/group.h"
#include "test/emulator/nccl/settings.h"
#include "test/emulator/nccl/trace.h"
#include "test/emulator/nccl/variant.h"

namespace emu_nccl {
namespace {

using std::to_string;

ncclResult_t invalid(const Call& call, const std::string& text) {
  return refuse(ncclInvalidArgument, std::string(call.name) + " : " + text);
}

bool known_operator(const Call& call) {
  if (call.op < ncclNumOps) return true;
  std::lock_guard lock(call.comm->mutex);
  return call.comm->operators.contains(call.op);
}

ncclResult_t check_pointer(const Call& call, const void* pointer, const char* what) {
  // The real NCCL faults on the GPU; a test is better served by a refusal.
  if (pointer == nullptr) {
    shout(std::string(call.name) + ": " + what + " is NULL");
    return invalid(call, std::string(what) + " is NULL");
  }
  if (!settings().check_pointers) return ncclSuccess;
  int device = -1;
  unsigned memory = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  if (cuPointerGetAttribute(&memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS)
    return invalid(call, std::string(what) + " is not a valid pointer");
  if (memory == CU_MEMORYTYPE_DEVICE &&
      cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
          CUDA_SUCCESS &&
      device != call.comm->device) {
    return invalid(call, std::string(what) + " allocated on device " + to_string(device) +
                             " mismatchs with NCCL device " + to_string(call.comm->device));
  }
  return ncclSuccess;
}

// The order of the checks is NCCL's (ArgsCheck, taskAppend).
ncclResult_t check_arguments(const Call& call) {
  const ncclComm& comm = *call.comm;
  if (call.root < 0 || call.root >= comm.ranks)
    return invalid(call, "invalid root " + to_string(call.root) + " (root should be in the 0.." +
                             to_string(comm.ranks) + " range)");
  if (call.type < 0 || call.type >= kVariant.datatypes)
    return invalid(call, "invalid type " + to_string(call.type));
  if (call.op < 0 || call.op > ncclMaxRedOp)
    return invalid(call, "invalid reduction operation " + to_string(call.op));
  if (!known_operator(call))
    return invalid(call,
                   "reduction operation " + to_string(call.op) + " unknown to this communicator");
  if (call.count == 0) return ncclSuccess;
  if (call.reads) EMU_NCCL_TRY(check_pointer(call, call.send, "sendbuff"));
  if (call.writes) EMU_NCCL_TRY(check_pointer(call, call.recv, "recvbuff"));
  if (is_reduction(call.function) && is_float8(call.datatype()) && comm.lowest_capability < 90)
    return invalid(call, "FP8 reduction support begins with sm90 capable devices.");
  return ncclSuccess;
}

ncclResult_t resolve(const Call& call, Reduction* out) {
  if (!is_reduction(call.function)) return ncclSuccess;
  switch (call.op) {
    case ncclSum:
      out->combine = Combine::kSum;
      break;
    case ncclProd:
      out->combine = Combine::kProd;
      break;
    case ncclMax:
      out->combine = Combine::kMax;
      break;
    case ncclMin:
      out->combine = Combine::kMin;
      break;
    case ncclAvg:
      out->scale = !is_integer(call.datatype());
      out->divide = is_integer(call.datatype());
      if (out->scale) out->scalar = reciprocal(call.datatype(), call.comm->ranks);
      break;
    default: {
      std::lock_guard lock(call.comm->mutex);
      const UserOperator& user = call.comm->operators.at(call.op);
      if (user.type != call.type) {
        return refuse(ncclInvalidArgument,
                      "Data type supplied to user-created ncclRedOp_t does not match type given to "
                      "reduction operation");
      }
      out->scale = true;
      out->scalar = user.scalar;
      out->scalar_address = user.scalar_address;
      out->shown = ncclNumOps;
      return ncclSuccess;
    }
  }
  out->shown = static_cast<unsigned>(call.op);
  return ncclSuccess;
}

ncclResult_t submit_transfer(const Call& call, Function function, const void* from, void* to,
                             int peer) {
  Operation operation;
  operation.function = function;
  operation.send = from;
  operation.recv = to;
  operation.count = call.count;
  operation.type = call.datatype();
  operation.root = peer;
  operation.stream = call.stream;
  return submit(call.comm, operation);
}

}  // namespace

ncclResult_t check_call(const Call& call) {
  if (tracing()) {
    trace_operation(call.name, call.comm, call.count * size_of(call.type), call.type,
                    is_reduction(call.function) ? call.op : -1, call.root, call.stream);
  }
  EMU_NCCL_TRY(fail_group(check_comm(call.comm, call.name)));
  if (call.comm->revoked.load()) {
    return fail_group(
        refuse(ncclInvalidUsage, std::string(call.name) + ": communicator was revoked"));
  }
  if (call.comm->suspended.load()) {  // the real one's kernel touches memory that is not there
    shout(std::string(call.name) + " on a suspended communicator");
    return fail_group(ncclInternalError);
  }
  EMU_NCCL_TRY(fail_group(ensure_ready(call.comm)));
  return fail_group(check_arguments(call));
}

ncclResult_t perform(const Call& call) {
  EMU_NCCL_TRY(check_call(call));
  // Empty collectives are dropped, empty messages are not.
  if (call.count == 0 && !is_point_to_point(call.function)) return ncclSuccess;
  Operation operation;
  EMU_NCCL_TRY(fail_group(resolve(call, &operation.reduction)));
  operation.function = call.function;
  operation.send = call.send;
  operation.recv = call.recv;
  operation.count = call.count;
  operation.type = call.datatype();
  operation.root = call.root;
  operation.stream = call.stream;
  return fail_group(submit(call.comm, operation));
}

ncclResult_t send_block(const Call& call, size_t block, int peer) {
  const size_t offset = block * call.count * size_of(call.type);
  return submit_transfer(call, Function::kSend, static_cast<const char*>(call.send) + offset,
                         nullptr, peer);
}

ncclResult_t receive_block(const Call& call, size_t block, int peer) {
  const size_t offset = block * call.count * size_of(call.type);
  return submit_transfer(call, Function::kRecv, nullptr, static_cast<char*>(call.recv) + offset,
                         peer);
}

}  // namespace emu_nccl
