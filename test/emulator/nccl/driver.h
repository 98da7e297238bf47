// The few things of the CUDA driver that need undoing.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <string>

#include "test/emulator/nccl/report.h"

namespace emu_nccl {

inline ncclResult_t check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  return refuse(ncclUnhandledCudaError,
                std::string(what) + ": CUDA error " + std::to_string(static_cast<int>(result)));
}

// Makes a context current for a scope. Lets an abort synchronize while another thread captures in
// global mode, which NCCL's own thread-local exchange does too.
class ContextGuard {
 public:
  explicit ContextGuard(CUcontext context) : pushed_(cuCtxPushCurrent(context) == CUDA_SUCCESS) {
    cuThreadExchangeStreamCaptureMode(&mode_);
  }
  ~ContextGuard() {
    cuThreadExchangeStreamCaptureMode(&mode_);
    CUcontext popped;
    if (pushed_) cuCtxPopCurrent(&popped);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool pushed_;
};

#define EMU_NCCL_TRY(call)                                      \
  do {                                                          \
    const ncclResult_t emu_nccl_result = (call);                \
    if (emu_nccl_result != ncclSuccess) return emu_nccl_result; \
  } while (0)

}  // namespace emu_nccl
