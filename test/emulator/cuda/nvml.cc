// libnvidia-ml.so.1: just enough to ask which GPUs there are and how they are joined. NVML's header
// is in no package that the build needs, so the few types that matter stand here (NVML API
// reference, "Device Queries").
#include <cstdint>
#include <cstdio>

#include "machine.h"
#include "settings.h"

namespace {

enum Return : int { kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotFound = 6 };
enum P2pCaps : int { kRead = 0, kWrite = 1, kNvlink = 2, kAtomics = 3, kProp = 4 };
enum P2pStatus : int { kOk = 0, kNotSupported = 5 };
struct PciInfo {  // nvmlPciInfo_t
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
using Device = struct Opaque*;

int initialized = 0;

Device device_of(int gpu) { return reinterpret_cast<Device>(static_cast<intptr_t>(gpu) + 1); }
int gpu_of(Device device) {
  const auto gpu = static_cast<int>(reinterpret_cast<intptr_t>(device)) - 1;
  return gpu >= 0 && gpu < emu::settings().gpus ? gpu : -1;
}

}  // namespace

#define EMU_NVML __attribute__((visibility("default")))
extern "C" {

EMU_NVML int nvmlInit_v2() {
  ++initialized;
  return kSuccess;
}

EMU_NVML int nvmlShutdown() {
  if (initialized == 0) return kUninitialized;
  --initialized;
  return kSuccess;
}

EMU_NVML const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "The operation was successful";
    case kUninitialized:
      return "NVML was not first initialized with nvmlInit()";
    case kInvalidArgument:
      return "A supplied argument is invalid";
    case kNotFound:
      return "A query to find an object was unsuccessful";
    default:
      return "An internal driver error occurred";
  }
}

// All GPUs of the machine: NVML does not look at CUDA_VISIBLE_DEVICES.
EMU_NVML int nvmlDeviceGetCount_v2(unsigned* count) {
  if (initialized == 0) return kUninitialized;
  *count = static_cast<unsigned>(emu::settings().gpus);
  return kSuccess;
}

EMU_NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (initialized == 0) return kUninitialized;
  if (index >= static_cast<unsigned>(emu::settings().gpus)) return kInvalidArgument;
  *device = device_of(static_cast<int>(index));
  return kSuccess;
}

EMU_NVML int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  if (initialized == 0) return kUninitialized;
  if (uuid == nullptr || device == nullptr) return kInvalidArgument;
  for (int gpu = 0; gpu < emu::settings().gpus; ++gpu) {
    if (emu::text_of(emu::uuid_of(gpu)) != uuid) continue;
    *device = device_of(gpu);
    return kSuccess;
  }
  return kNotFound;
}

EMU_NVML int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  if (initialized == 0) return kUninitialized;
  std::snprintf(text, length, "1.0-emulated");
  return kSuccess;
}

EMU_NVML int nvmlDeviceGetName(Device device, char* text, unsigned length) {
  if (initialized == 0) return kUninitialized;
  if (gpu_of(device) < 0) return kInvalidArgument;
  std::snprintf(text, length, "Emulated GPU");
  return kSuccess;
}

EMU_NVML int nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  if (initialized == 0) return kUninitialized;
  const int gpu = gpu_of(device);
  if (gpu < 0 || info == nullptr) return kInvalidArgument;
  *info = {};
  info->bus = static_cast<unsigned>(emu::pci_bus_of(gpu));
  std::snprintf(info->id, sizeof(info->id), "0000%s", emu::pci_bus_id_of(gpu).c_str());
  return kSuccess;
}

EMU_NVML int nvmlDeviceGetP2PStatus(Device first, Device second, int capability, int* status) {
  if (initialized == 0) return kUninitialized;
  const int a = gpu_of(first), b = gpu_of(second);
  if (a < 0 || b < 0 || status == nullptr) return kInvalidArgument;
  bool supported = false;
  switch (capability) {
    case kRead:
    case kWrite:
    case kProp:
      supported = emu::can_access(a, b);
      break;
    case kNvlink:
    case kAtomics:
      supported = emu::joined_by_nvlink(a, b);
      break;
    default:
      return kInvalidArgument;
  }
  *status = supported ? kOk : kNotSupported;
  return kSuccess;
}

}  // extern "C"
