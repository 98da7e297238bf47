// Entry points: life of the driver, devices, names of errors.
#include <cuda.h>

#include <cstring>

#include "context.h"
#include "report.h"
#include "settings.h"

using namespace emu;

namespace {

struct ErrorText {
  CUresult code;
  const char* name;
  const char* text;
};

#define EMU_ERROR(name, text) \
  { name, #name, text }
constexpr ErrorText kErrors[] = {
    EMU_ERROR(CUDA_SUCCESS, "no error"),
    EMU_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    EMU_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    EMU_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    EMU_ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    EMU_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    EMU_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    EMU_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    EMU_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    EMU_ERROR(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    EMU_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU,
              "no kernel image is available for execution on the device"),
    EMU_ERROR(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
              "peer access is not supported between these two devices"),
    EMU_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    EMU_ERROR(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    EMU_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    EMU_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    EMU_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    EMU_ERROR(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    EMU_ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    EMU_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
              "part or all of the requested memory range is already mapped"),
    EMU_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
              "pointer does not correspond to a registered memory region"),
    EMU_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    EMU_ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    EMU_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
              "operation not permitted when stream is capturing"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              "operation failed due to a previous error during capture"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_MERGE,
              "operation would result in a merge of separate capture sequences"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
              "capture was not ended in the same stream as it began"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
              "dependency created on uncaptured work in another stream"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
              "operation would make the legacy stream depend on a capturing blocking stream"),
    EMU_ERROR(CUDA_ERROR_CAPTURED_EVENT,
              "operation not permitted on an event last recorded in a capturing stream"),
    EMU_ERROR(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
              "attempt to terminate a thread-local capture sequence from another thread"),
    EMU_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};

const ErrorText* find_error(CUresult code) {
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return &error;
  }
  return nullptr;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) {
  return call_in_any_state("cuInit", [&] {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (visible_gpus().empty()) return CUDA_ERROR_NO_DEVICE;
    initialize_process();
    return state_of_process();
  });
}

CUresult cuDriverGetVersion(int* version) {
  return call_in_any_state("cuDriverGetVersion", [&] {
    if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorName(CUresult code, const char** name) {
  const ErrorText* error = find_error(code);
  *name = error == nullptr ? nullptr : error->name;
  return error == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char** text) {
  const ErrorText* error = find_error(code);
  *text = error == nullptr ? nullptr : error->text;
  return error == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", [&] {
    *count = static_cast<int>(visible_gpus().size());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call("cuDeviceGet", [&] {
    *device = context_of_device(ordinal).ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  return call("cuDeviceGetName", [&] {
    context_of_device(device);
    if (name == nullptr || bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
    std::strncpy(name, "Emulated GPU", static_cast<size_t>(bytes));
    name[bytes - 1] = '\0';
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call("cuDeviceGetAttribute", [&] {
    return device_attribute(context_of_device(device).gpu, attribute, value)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return call("cuDeviceGetUuid_v2", [&] {
    const Uuid bytes = uuid_of(context_of_device(device).gpu);
    std::memcpy(uuid->bytes, bytes.data(), bytes.size());
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuDeviceGetUuid", "cuDeviceGetUuid_v2");

CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
  return call("cuDeviceGetPCIBusId", [&] {
    const std::string text = pci_bus_id_of(context_of_device(device).gpu);
    if (id == nullptr || bytes <= static_cast<int>(text.size())) return CUDA_ERROR_INVALID_VALUE;
    std::strcpy(id, text.c_str());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return call("cuDeviceTotalMem_v2", [&] {
    context_of_device(device);
    *bytes = settings().memory;
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuDeviceTotalMem", "cuDeviceTotalMem_v2");

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call("cuDeviceCanAccessPeer", [&] {
    const int gpu = context_of_device(device).gpu;
    const int peer_gpu = context_of_device(peer).gpu;
    *can = gpu != peer_gpu && can_access(gpu, peer_gpu);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from,
                                 CUdevice to) {
  return call("cuDeviceGetP2PAttribute", [&] {
    const int gpu = context_of_device(from).gpu;
    const int peer = context_of_device(to).gpu;
    if (gpu == peer) return CUDA_ERROR_INVALID_DEVICE;
    const bool access = can_access(gpu, peer);
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = joined_by_nvlink(gpu, peer) ? 0 : 1;
        return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *value = access;
        return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = access && joined_by_nvlink(gpu, peer);
        return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

}  // extern "C"
