// Entry points: copies and fills.
#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "memory.h"
#include "report.h"

using namespace emu;

namespace {

// Where one side of a copy must lie.
enum class Side { kDevice, kHost, kAny };

void check(const void* pointer, size_t bytes, Side side, const char* caller) {
  if (side == Side::kDevice) require_region(pointer, bytes, caller);
}

// Pinned or GPU memory, not pageable.
bool known(const void* pointer) { return address_map().find(pointer).has_value(); }

Op copy_op(void* to, const void* from, size_t bytes) {
  return {CU_GRAPH_NODE_TYPE_MEMCPY, [=](const RunInfo&) {
            std::memcpy(to, from, bytes);
            return CUDA_SUCCESS;
          }};
}

CUresult copy_async(const char* caller, void* to, Side to_side, const void* from, Side from_side,
                    size_t bytes, CUstream handle) {
  return call(caller, [&] {
    if (bytes == 0) return CUDA_SUCCESS;
    check(to, bytes, to_side, caller);
    check(from, bytes, from_side, caller);
    WorkPtr work;
    bool wait = false;
    {
      const Lock lock = lock_driver();
      const StreamPtr stream = stream_of(handle, caller);
      if (!stream->capture && !known(from)) {
        // Pageable memory is staged: the caller may change it as soon as this returns.
        auto staged = std::make_shared<std::vector<unsigned char>>(
            static_cast<const unsigned char*>(from),
            static_cast<const unsigned char*>(from) + bytes);
        work = submit(stream, {CU_GRAPH_NODE_TYPE_MEMCPY, [=](const RunInfo&) {
                                 std::memcpy(to, staged->data(), bytes);
                                 return CUDA_SUCCESS;
                               }});
      } else {
        work = submit(stream, copy_op(to, from, bytes));
      }
      wait = work != nullptr && !known(to);  // into pageable memory: returns when it is there
    }
    if (!wait) return CUDA_SUCCESS;
    work->wait();
    return work->result();
  });
}

// Synchronous calls run on the legacy stream, and are unsafe while anyone captures.
CUresult run_on_legacy(const char* caller, Op op) {
  Context& context = current_context();
  WorkPtr work;
  {
    const Lock lock = lock_driver();
    check_legacy(context);
    check_unsafe();
    work = submit(stream_of(nullptr, caller), std::move(op));
  }
  work->wait();
  return work->result();
}

CUresult copy_now(const char* caller, void* to, Side to_side, const void* from, Side from_side,
                  size_t bytes) {
  return call(caller, [&] {
    if (bytes == 0) return CUDA_SUCCESS;
    check(to, bytes, to_side, caller);
    check(from, bytes, from_side, caller);
    return run_on_legacy(caller, copy_op(to, from, bytes));
  });
}

template <typename T>
Op fill_op(void* to, T value, size_t count) {
  return {CU_GRAPH_NODE_TYPE_MEMSET, [=](const RunInfo&) {
            std::fill_n(static_cast<T*>(to), count, value);
            return CUDA_SUCCESS;
          }};
}

template <typename T>
CUresult fill_async(const char* caller, CUdeviceptr to, T value, size_t count, CUstream handle) {
  return call(caller, [&] {
    if (to % sizeof(T) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (count == 0) return CUDA_SUCCESS;
    void* pointer = reinterpret_cast<void*>(to);
    check(pointer, count * sizeof(T), Side::kDevice, caller);
    const Lock lock = lock_driver();
    submit(stream_of(handle, caller), fill_op(pointer, value, count));
    return CUDA_SUCCESS;
  });
}

template <typename T>
CUresult fill_now(const char* caller, CUdeviceptr to, T value, size_t count) {
  return call(caller, [&] {
    if (to % sizeof(T) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (count == 0) return CUDA_SUCCESS;
    void* pointer = reinterpret_cast<void*>(to);
    check(pointer, count * sizeof(T), Side::kDevice, caller);
    return run_on_legacy(caller, fill_op(pointer, value, count));
  });
}

void* ptr(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_async("cuMemcpyHtoDAsync_v2", ptr(to), Side::kDevice, from, Side::kHost, bytes,
                    stream);
}
EMU_ALSO_NAMED("cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2");

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_async("cuMemcpyDtoHAsync_v2", to, Side::kHost, ptr(from), Side::kDevice, bytes,
                    stream);
}
EMU_ALSO_NAMED("cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2");

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_async("cuMemcpyDtoDAsync_v2", ptr(to), Side::kDevice, ptr(from), Side::kDevice, bytes,
                    stream);
}
EMU_ALSO_NAMED("cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2");

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_async("cuMemcpyAsync", ptr(to), Side::kAny, ptr(from), Side::kAny, bytes, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext /*to_context*/, CUdeviceptr from,
                           CUcontext /*from_context*/, size_t bytes, CUstream stream) {
  return copy_async("cuMemcpyPeerAsync", ptr(to), Side::kDevice, ptr(from), Side::kDevice, bytes,
                    stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_now("cuMemcpyHtoD_v2", ptr(to), Side::kDevice, from, Side::kHost, bytes);
}
EMU_ALSO_NAMED("cuMemcpyHtoD", "cuMemcpyHtoD_v2");

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoH_v2", to, Side::kHost, ptr(from), Side::kDevice, bytes);
}
EMU_ALSO_NAMED("cuMemcpyDtoH", "cuMemcpyDtoH_v2");

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoD_v2", ptr(to), Side::kDevice, ptr(from), Side::kDevice, bytes);
}
EMU_ALSO_NAMED("cuMemcpyDtoD", "cuMemcpyDtoD_v2");

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpy", ptr(to), Side::kAny, ptr(from), Side::kAny, bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill_async<uint8_t>("cuMemsetD8Async", to, value, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill_async<uint32_t>("cuMemsetD32Async", to, value, count, stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return fill_now<uint8_t>("cuMemsetD8_v2", to, value, count);
}
EMU_ALSO_NAMED("cuMemsetD8", "cuMemsetD8_v2");

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return fill_now<uint32_t>("cuMemsetD32_v2", to, value, count);
}
EMU_ALSO_NAMED("cuMemsetD32", "cuMemsetD32_v2");

}  // extern "C"
