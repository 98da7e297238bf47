// The CUDA driver as this library uses it: our own prototypes and explicit symbol versions, since the
// headers of CUDA 12 and 13 give the same names to different functions. Source: CUDA Driver API
// reference. libcuda.so.1 is opened when first needed, by the ordinary dlsym chain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

// The driver's own opaque types, so that a cudaStream_t of nccl.h is a cu::Stream.
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace shunt::cu {

using Result = int;
using Device = int;
using Ptr = unsigned long long;
using Context = CUctx_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Graph = CUgraph_st*;
using GraphExec = CUgraphExec_st*;
struct Uuid { unsigned char bytes[16]; };
struct IpcHandle { unsigned char bytes[64]; };

inline constexpr Result kSuccess = 0;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kIllegalState = 401;
inline constexpr Result kNotReady = 600;
inline constexpr Result kPeerAccessAlreadyEnabled = 704;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1, kHostAllocDeviceMap = 2;
inline constexpr unsigned kHostRegisterPortable = 1, kHostRegisterDeviceMap = 2;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr int kCaptureNone = 0, kCaptureActive = 1;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kAttributeMaxThreadsPerBlock = 1;
inline constexpr int kAttributeMultiprocessorCount = 16;
inline constexpr int kAttributeComputeCapabilityMajor = 75;
inline constexpr int kAttributeComputeCapabilityMinor = 76;
inline constexpr int kFuncAttributeNumRegs = 4;

// X(member, symbol, result and parameters). All are needed.
#define SHUNT_DRIVER_FUNCTIONS(X)                                                                  \
  X(init, cuInit, (unsigned))                                                                      \
  X(driver_version, cuDriverGetVersion, (int*))                                                    \
  X(error_name, cuGetErrorName, (Result, const char**))                                            \
  X(device_count, cuDeviceGetCount, (int*))                                                        \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, Device))                                   \
  X(device_uuid, cuDeviceGetUuid, (Uuid*, Device))                                                 \
  X(device_pci_bus_id, cuDeviceGetPCIBusId, (char*, int, Device))                                  \
  X(can_access_peer, cuDeviceCanAccessPeer, (int*, Device, Device))                                \
  X(primary_retain, cuDevicePrimaryCtxRetain, (Context*, Device))                                  \
  X(context_get, cuCtxGetCurrent, (Context*))                                                      \
  X(context_push, cuCtxPushCurrent_v2, (Context))                                                  \
  X(context_pop, cuCtxPopCurrent_v2, (Context*))                                                   \
  X(enable_peer, cuCtxEnablePeerAccess, (Context, unsigned))                                       \
  X(mem_alloc, cuMemAlloc_v2, (Ptr*, size_t))                                                      \
  X(mem_free, cuMemFree_v2, (Ptr))                                                                 \
  X(host_alloc, cuMemHostAlloc, (void**, size_t, unsigned))                                        \
  X(host_free, cuMemFreeHost, (void*))                                                             \
  X(host_device_pointer, cuMemHostGetDevicePointer_v2, (Ptr*, void*, unsigned))                    \
  X(host_register, cuMemHostRegister_v2, (void*, size_t, unsigned))                                \
  X(host_unregister, cuMemHostUnregister, (void*))                                                 \
  X(copy_to_device, cuMemcpyHtoDAsync_v2, (Ptr, const void*, size_t, Stream))                      \
  X(copy_to_host, cuMemcpyDtoHAsync_v2, (void*, Ptr, size_t, Stream))                              \
  X(copy, cuMemcpyAsync, (Ptr, Ptr, size_t, Stream))                                               \
  X(set32, cuMemsetD32Async, (Ptr, unsigned, size_t, Stream))                                      \
  X(ipc_get, cuIpcGetMemHandle, (IpcHandle*, Ptr))                                                 \
  X(ipc_open, cuIpcOpenMemHandle_v2, (Ptr*, IpcHandle, unsigned))                                  \
  X(stream_create, cuStreamCreate, (Stream*, unsigned))                                            \
  X(stream_destroy, cuStreamDestroy_v2, (Stream))                                                  \
  X(stream_query, cuStreamQuery, (Stream))                                                         \
  X(stream_wait_event, cuStreamWaitEvent, (Stream, Event, unsigned))                               \
  X(capture_info, cuStreamGetCaptureInfo_v2,                                                       \
    (Stream, int*, unsigned long long*, Graph*, const void**, size_t*))                            \
  X(begin_capture, cuStreamBeginCapture_v2, (Stream, int))                                         \
  X(end_capture, cuStreamEndCapture, (Stream, Graph*))                                             \
  X(capture_mode_exchange, cuThreadExchangeStreamCaptureMode, (int*))                              \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))       \
  X(graph_launch, cuGraphLaunch, (GraphExec, Stream))                                              \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExec))                                           \
  X(graph_destroy, cuGraphDestroy, (Graph))                                                        \
  X(event_create, cuEventCreate, (Event*, unsigned))                                               \
  X(event_record, cuEventRecord, (Event, Stream))                                                  \
  X(event_query, cuEventQuery, (Event))                                                            \
  X(event_elapsed, cuEventElapsedTime, (float*, Event, Event))                                     \
  X(event_destroy, cuEventDestroy_v2, (Event))                                                     \
  X(module_load, cuModuleLoadData, (Module*, const void*))                                         \
  X(module_function, cuModuleGetFunction, (Function*, Module, const char*))                        \
  X(function_attribute, cuFuncGetAttribute, (int*, int, Function))                                 \
  X(launch, cuLaunchKernel,                                                                        \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,       \
     void**, void**))

struct Api {
#define SHUNT_DRIVER_MEMBER(member, symbol, args) Result(*member) args = nullptr;
  SHUNT_DRIVER_FUNCTIONS(SHUNT_DRIVER_MEMBER)
#undef SHUNT_DRIVER_MEMBER
  // Optional: of CUDA 12.0.
  Result (*context_id)(Context, unsigned long long*) = nullptr;
  Result (*stream_id)(Stream, unsigned long long*) = nullptr;
};

// What error lines call the functions.
struct Names {
#define SHUNT_DRIVER_NAME(member, symbol, args) static constexpr const char* member = #symbol;
  SHUNT_DRIVER_FUNCTIONS(SHUNT_DRIVER_NAME)
#undef SHUNT_DRIVER_NAME
  static constexpr const char* context_id = "cuCtxGetId";
};

// The driver; throws Error where it is missing or lacks a function. Never initialises CUDA.
const Api& api();

// A driver call failed, or the driver is missing. what(): "cuX: CUDA_ERROR_NAME".
struct Error : std::runtime_error {
  Error(const std::string& what, Result result_code) : std::runtime_error(what), code(result_code) {}
  Result code;
};

std::string error_text(const char* function, Result result);
inline void check(Result result, const char* function) {
  if (result != kSuccess) throw Error(error_text(function, result), result);
}
#define SHUNT_CU(member, ...) \
  ::shunt::cu::check(::shunt::cu::api().member(__VA_ARGS__), ::shunt::cu::Names::member)

// Makes `context` current for a scope, at no cost if it already is.
class ContextScope {
 public:
  explicit ContextScope(Context context) {
    Context now = nullptr;
    SHUNT_CU(context_get, &now);
    if (now == context) return;
    SHUNT_CU(context_push, context);
    pushed_ = true;
  }
  ~ContextScope() {
    Context popped = nullptr;
    if (pushed_) api().context_pop(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_ = false;
};

// Lets this thread call what another thread's global-mode capture would forbid it.
class RelaxedCaptureScope {
 public:
  RelaxedCaptureScope() { api().capture_mode_exchange(&mode_); }
  ~RelaxedCaptureScope() { api().capture_mode_exchange(&mode_); }
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

 private:
  int mode_ = kCaptureModeRelaxed;
};

}  // namespace shunt::cu
