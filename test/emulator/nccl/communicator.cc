#include "test/emulator/nccl/communicator.h"

#include <cstring>
#include <string>

#include "test/emulator/nccl/driver.h"
#include "test/emulator/nccl/settings.h"

namespace emu_nccl {

bool asks_itself(const ncclComm* comm) {
  return comm && comm->asking.load() == std::this_thread::get_id();
}

ncclResult_t check_comm(const ncclComm* comm, const char* function) {
  if (comm == nullptr)
    return refuse(ncclInvalidArgument, std::string(function) + " : comm argument is NULL");
  if (comm->start_magic != kCommMagic || comm->end_magic != kCommMagic)
    return refuse(ncclInvalidArgument, "Error: corrupted comm object detected");
  return ncclSuccess;
}

ncclResult_t ensure_ready(ncclComm* comm) {
  if (comm->core->halt_everything.load()) return ncclSuccess;
  ncclResult_t state = ncclSuccess;
  comm->asking.store(std::this_thread::get_id());
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  comm->asking.store({});
  EMU_NCCL_TRY(asked);
  if (state == ncclInProgress) {
    return refuse(ncclInvalidArgument,
                  "Attempt to use communicator before the previous operation returned ncclSuccess");
  }
  return state;
}

ncclResult_t parse_config(const ncclConfig_t* config, bool* blocking) {
  *blocking = settings().blocking;
  if (config == nullptr) return ncclSuccess;
  ncclConfig_t copy = NCCL_CONFIG_INITIALIZER;
  copy.magic = 0;
  std::memcpy(static_cast<void*>(&copy), config, std::min(config->size, sizeof(copy)));
  if (copy.magic != 0xcafebeef) {
    return refuse(ncclInvalidArgument,
                  "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
  }
  const auto refused = [](const char* name, int value) {
    return refuse(ncclInvalidArgument, std::string("Invalid config ") + name + " attribute value " +
                                           std::to_string(value));
  };
  const int undefined = NCCL_CONFIG_UNDEF_INT;
  if (copy.blocking != undefined && copy.blocking != 0 && copy.blocking != 1)
    return refused("blocking", copy.blocking);
  if (copy.cgaClusterSize != undefined && copy.cgaClusterSize < 0)
    return refused("cgaClusterSize", copy.cgaClusterSize);
  if (copy.minCTAs != undefined && copy.minCTAs <= 0) return refused("minCTAs", copy.minCTAs);
  if (copy.maxCTAs != undefined && copy.maxCTAs <= 0) return refused("maxCTAs", copy.maxCTAs);
  if (copy.splitShare != undefined && copy.splitShare != 0 && copy.splitShare != 1)
    return refused("splitShare", copy.splitShare);
  if (copy.blocking != undefined) *blocking = copy.blocking == 1;
  return ncclSuccess;
}

ncclResult_t current_device(CUcontext* context, int* device) {
  EMU_NCCL_TRY(check(cuInit(0), "cuInit"));
  EMU_NCCL_TRY(check(cuCtxGetCurrent(context), "cuCtxGetCurrent"));
  if (*context == nullptr) {
    EMU_NCCL_TRY(check(cuDevicePrimaryCtxRetain(context, 0), "cuDevicePrimaryCtxRetain"));
    EMU_NCCL_TRY(check(cuCtxSetCurrent(*context), "cuCtxSetCurrent"));
  }
  CUdevice handle = 0;
  EMU_NCCL_TRY(check(cuCtxGetDevice(&handle), "cuCtxGetDevice"));
  *device = handle;
  return ncclSuccess;
}

ncclResult_t retire(ncclComm* comm) {
  if (comm->worker.joinable()) comm->worker.join();
  if (comm->context) {
    ContextGuard guard(comm->context);
    // A failed context is no reason to keep the communicator, NCCL frees it too; but then nothing
    // ends what waits inside the operation that runs.
    if (comm->order.drain() != ncclSuccess) comm->core->halt(true);
    comm->order.destroy();
  }
  if (Core& core = *comm->core; core.segment.mapped()) {
    // A replay that runs right now is in no event that drain() knows.
    static const std::atomic<bool> kNever{false};
    core.segment.wait_until(kNever, [&] { return !core.running.load(); });
  }
  comm->start_magic = comm->end_magic = 0;
  delete comm;
  return ncclSuccess;
}

}  // namespace emu_nccl
