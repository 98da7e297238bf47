// Version, errors and groups: what every NCCL since 2.18 has.
#include "test/emulator/nccl/api.h"
#include "test/emulator/nccl/group.h"
#include "test/emulator/nccl/report.h"
#include "test/emulator/nccl/settings.h"
#include "test/emulator/nccl/trace.h"
#include "test/emulator/nccl/variant.h"

EMU_NCCL_API(ncclResult_t, ncclGetVersion, int* version) {
  emu_nccl::trace_call("ncclGetVersion", nullptr);
  if (version == nullptr) return ncclInvalidArgument;
  const int forced = emu_nccl::settings().version;
  *version = forced ? forced : emu_nccl::kVariant.version;
  return ncclSuccess;
}

EMU_NCCL_API(const char*, ncclGetErrorString, ncclResult_t result) {
  return emu_nccl::error_string(result);
}

EMU_NCCL_API(const char*, ncclGetLastError, ncclComm_t) { return emu_nccl::last_error(); }

EMU_NCCL_API(ncclResult_t, ncclGroupStart, ) {
  emu_nccl::trace_call("ncclGroupStart", nullptr);
  emu_nccl::group_start();
  return ncclSuccess;
}

EMU_NCCL_API(ncclResult_t, ncclGroupEnd, ) {
  emu_nccl::trace_call("ncclGroupEnd", nullptr);
  return emu_nccl::group_end();
}
