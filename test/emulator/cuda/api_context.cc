// Entry points: primary contexts and the stack of current ones.
#include <cuda.h>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "report.h"

using namespace emu;

extern "C" {

CUresult cuDevicePrimaryCtxRetain(CUcontext* handle, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", [&] {
    Context& context = context_of_device(device);
    context.retain();
    *handle = context.handle();
    return context.sticky();
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call("cuDevicePrimaryCtxRelease_v2", [&] {
    context_of_device(device).release();
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2");

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return call("cuDevicePrimaryCtxReset_v2", [&] {
    Context& context = context_of_device(device);
    context.reset();
    const Lock lock = lock_driver();
    live_streams().remove_if([&](Stream& stream) { return &stream.context() == &context; });
    live_events().remove_if([&](const Event& event) { return &event.context == &context; });
    live_functions().remove_if([&](const Function& one) { return &one.context == &context; });
    live_modules().remove_if([&](const Module& module) { return &module.context == &context; });
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2");

CUresult cuCtxGetId(CUcontext handle, unsigned long long* id) {
  return call("cuCtxGetId", [&] {
    Context* const context = handle != nullptr ? context_of_handle(handle) : &current_context();
    if (!context->retained()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *id = context->id();
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return call("cuDevicePrimaryCtxGetState", [&] {
    *flags = 0;
    *active = context_of_device(device).retained();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* handle) {
  return call("cuCtxGetCurrent", [&] {
    const std::vector<Context*>& stack = context_stack();
    *handle = stack.empty() || stack.back() == nullptr ? nullptr : stack.back()->handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext handle) {
  return call("cuCtxSetCurrent", [&] {
    Context* context = context_of_handle(handle);
    std::vector<Context*>& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext handle) {
  return call("cuCtxPushCurrent_v2", [&] {
    Context* context = context_of_handle(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(context);
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuCtxPushCurrent", "cuCtxPushCurrent_v2");

CUresult cuCtxPopCurrent_v2(CUcontext* handle) {
  return call("cuCtxPopCurrent_v2", [&] {
    std::vector<Context*>& stack = context_stack();
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle != nullptr) *handle = stack.back()->handle();
    stack.pop_back();
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuCtxPopCurrent", "cuCtxPopCurrent_v2");

CUresult cuCtxGetDevice(CUdevice* device) {
  return call("cuCtxGetDevice", [&] {
    const std::vector<Context*>& stack = context_stack();
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = stack.back()->ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize(void) {
  return call("cuCtxSynchronize", [&] {
    Context& context = current_context();
    {
      const Lock lock = lock_driver();
      check_no_capture(context);
      check_unsafe();
    }
    context.wait_idle();
    return context.sticky();
  });
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return call("cuCtxEnablePeerAccess", [&] {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    Context& context = current_context();
    const Context* other = context_of_handle(peer);
    if (other == nullptr || other == &context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!can_access(context.gpu, other->gpu)) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    const Lock lock = lock_driver();
    check_unsafe();
    context.enable_peer(other->gpu);
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
