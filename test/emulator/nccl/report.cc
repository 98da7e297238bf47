#include "test/emulator/nccl/report.h"

#include <unistd.h>

#include <cstring>
#include <mutex>

#include "test/emulator/nccl/settings.h"

namespace emu_nccl {
namespace {

std::mutex last_error_mutex;
char last_error_text[1024] = "";

}  // namespace

void shout(const std::string& text) {
  const std::string line = "emulated nccl: " + text + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

ncclResult_t refuse(ncclResult_t result, const std::string& text) {
  {
    std::lock_guard lock(last_error_mutex);
    std::strncpy(last_error_text, text.c_str(), sizeof(last_error_text) - 1);
  }
  if (settings().warn) shout("NCCL WARN " + text);
  return result;
}

const char* last_error() { return last_error_text; }

// NCCL 2.28.9, src/init.cc.
const char* error_string(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

}  // namespace emu_nccl
