// Entry points: allocations, IPC, what a pointer is.
#include <cuda.h>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "memory.h"
#include "report.h"
#include "settings.h"

using namespace emu;

namespace {

// Allocations and what else may not happen during captures.
Context& context_for_unsafe_call() {
  Context& context = current_context();
  const Lock lock = lock_driver();
  check_unsafe();
  return context;
}

void* pointer_of(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

CUresult pointer_attribute(void* value, CUpointer_attribute attribute, const Region& region,
                           CUdeviceptr pointer) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = region.context->handle();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = region.host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!region.host()) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(value) = pointer_of(pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(value) = region.nonce == 0 ? region.base : region.nonce;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned char*>(value) = 0;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = region.context->ordinal;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<unsigned char*>(value) = region.place == Place::kDevice;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = region.base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(value) = region.bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned char*>(value) = 1;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  return call("cuMemGetInfo_v2", [&] {
    *total = settings().memory;
    *free_bytes = settings().memory - current_context().used;
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuMemGetInfo", "cuMemGetInfo_v2");

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return call("cuMemAlloc_v2", [&] {
    *address = address_of(allocate_device(context_for_unsafe_call(), bytes));
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuMemAlloc", "cuMemAlloc_v2");

CUresult cuMemFree_v2(CUdeviceptr address) {
  return call("cuMemFree_v2", [&] {
    context_for_unsafe_call();
    free_device(pointer_of(address));
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuMemFree", "cuMemFree_v2");

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return call("cuMemGetAddressRange_v2", [&] {
    const std::optional<Region> region = address_map().find(pointer_of(address));
    if (!region) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = region->base;
    if (bytes != nullptr) *bytes = region->bytes;
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuMemGetAddressRange", "cuMemGetAddressRange_v2");

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned /*flags*/) {
  return call("cuMemHostAlloc", [&] {
    *pointer = allocate_host(context_for_unsafe_call(), bytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return call("cuMemAllocHost_v2", [&] {
    *pointer = allocate_host(context_for_unsafe_call(), bytes);
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuMemAllocHost", "cuMemAllocHost_v2");

CUresult cuMemFreeHost(void* pointer) {
  return call("cuMemFreeHost", [&] {
    context_for_unsafe_call();
    free_host(pointer);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned /*flags*/) {
  return call("cuMemHostGetDevicePointer_v2", [&] {
    current_context();
    const std::optional<Region> region = address_map().find(pointer);
    if (!region || !region->host()) return CUDA_ERROR_INVALID_VALUE;
    *address = address_of(pointer);
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuMemHostGetDevicePointer", "cuMemHostGetDevicePointer_v2");

CUresult cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned /*flags*/) {
  return call("cuMemHostRegister_v2", [&] {
    register_host(context_for_unsafe_call(), pointer, bytes);
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuMemHostRegister", "cuMemHostRegister_v2");

CUresult cuMemHostUnregister(void* pointer) {
  return call("cuMemHostUnregister", [&] {
    context_for_unsafe_call();
    unregister_host(pointer);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return call("cuIpcGetMemHandle", [&] {
    context_for_unsafe_call();
    *handle = export_device(pointer_of(address));
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return call("cuIpcOpenMemHandle_v2", [&] {
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    *address = address_of(open_peer(context_for_unsafe_call(), handle));
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2");

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return call("cuIpcCloseMemHandle", [&] {
    close_peer(context_for_unsafe_call(), pointer_of(address));
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  return call("cuPointerGetAttribute", [&] {
    const std::optional<Region> region = address_map().find(pointer_of(address));
    if (value == nullptr || !region) return CUDA_ERROR_INVALID_VALUE;
    return pointer_attribute(value, attribute, *region, address);
  });
}

}  // extern "C"
