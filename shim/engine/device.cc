#include "shim/engine/device.h"

#include "shim/engine/shared_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

extern "C" const unsigned char shunt_fatbin_begin[];  // embedded by fatbin.S

namespace shunt {
namespace {

int attribute(cu::Device device, int which) {
  int value = 0;
  SHUNT_CU(device_attribute, &value, which, device);
  return value;
}

void load_module(GpuDevice& device) {
  cu::ContextScope current(device.context);
  cu::Module module = nullptr;
  SHUNT_CU(module_load, &module, shunt_fatbin_begin);
  const auto load = [&](cu::Function& kernel, const char* name) {
    SHUNT_CU(module_function, &kernel, module, name);
    // Asking for an attribute loads the function, whatever CUDA_MODULE_LOADING says.
    int registers = 0;
    SHUNT_CU(function_attribute, &registers, cu::kFuncAttributeNumRegs, kernel);
  };
  load(device.hold, kHoldKernel);
  for (const Variant variant : {Variant::kFast, Variant::kAny, Variant::kGrouped}) {
    for (size_t b = 0; b < std::size(kPeerBatches); ++b) {
      for (uint32_t t = 0; t < kDataTypes; ++t) {
        const auto type = static_cast<DataType>(t);
        const std::string name = kernel_name(type, protocol_of(type), variant, kPeerBatches[b]);
        load(device.kernels[static_cast<size_t>(variant)][b][t], name.c_str());
      }
    }
  }
}

std::unique_ptr<GpuDevice> open_device(cu::Device ordinal) {
  SHUNT_CU(init, 0);
  auto device = std::make_unique<GpuDevice>();
  device->ordinal = ordinal;
  SHUNT_CU(primary_retain, &device->context, ordinal);
  if (cu::api().context_id != nullptr) SHUNT_CU(context_id, device->context, &device->context_id);
  SHUNT_CU(device_uuid, &device->uuid, ordinal);
  device->compute_major = attribute(ordinal, cu::kAttributeComputeCapabilityMajor);
  device->compute_minor = attribute(ordinal, cu::kAttributeComputeCapabilityMinor);
  char bus[32] = {};
  SHUNT_CU(device_pci_bus_id, bus, sizeof(bus), ordinal);
  device->numa_node = numa_node_of(bus);
  const auto threads = static_cast<uint32_t>(attribute(ordinal, cu::kAttributeMaxThreadsPerBlock));
  const auto processors =
      static_cast<uint32_t>(attribute(ordinal, cu::kAttributeMultiprocessorCount));
  // 0 where its blocks are too small; load_kernels then refuses.
  device->limits.max_threads = std::min(
      device->limits.max_threads, (threads - std::min(threads, kHeaderThreads + kWipeThreads)) / 32 * 32);
  // All lanes of a call must be able to run at once beside the user's kernels.
  device->limits.max_lanes = std::clamp(processors, 1u, device->limits.max_lanes);
  return device;
}

std::mutex mutex;  // held over driver calls of this process only, never while waiting for a peer
std::map<cu::Device, std::unique_ptr<GpuDevice>>& devices() {
  static auto& map = *new std::map<cu::Device, std::unique_ptr<GpuDevice>>;
  return map;
}

// NVML, opened when first needed. Source of names and types: NVML API reference.
class Nvml {
 public:
  static Nvml& get() {
    static Nvml nvml;
    return nvml;
  }
  NvLink between(const std::string& a, const std::string& b) {
    if (!ready_) return NvLink::kUnknown;
    void *first = nullptr, *second = nullptr;
    int status = -1;
    if (by_uuid_(a.c_str(), &first) != 0 || by_uuid_(b.c_str(), &second) != 0 ||
        p2p_status_(first, second, kCapsNvlink, &status) != 0) {
      return NvLink::kUnknown;
    }
    return status == 0 ? NvLink::kYes : NvLink::kNo;
  }

 private:
  static constexpr int kCapsNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK

  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&]<typename F>(const char* name, F& function) {
      function = reinterpret_cast<F>(dlsym(library, name));
      return function != nullptr;
    };
    int (*init)() = nullptr;
    ready_ = find("nvmlInit_v2", init) && find("nvmlDeviceGetHandleByUUID", by_uuid_) &&
             find("nvmlDeviceGetP2PStatus", p2p_status_) && init() == 0;
  }

  bool ready_ = false;
  int (*by_uuid_)(const char*, void**) = nullptr;
  int (*p2p_status_)(void*, void*, int, int*) = nullptr;
};

std::string uuid_text(const unsigned char (&u)[16]) {
  char out[48];
  std::snprintf(out, sizeof(out),
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1],
                u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14],
                u[15]);
  return out;
}

}  // namespace

bool context_lives(const GpuDevice& device) noexcept {
  if (cu::api().context_id == nullptr) return true;
  unsigned long long id = 0;
  return cu::api().context_id(device.context, &id) == cu::kSuccess && id == device.context_id;
}

const GpuDevice& gpu_device(cu::Device ordinal) {
  std::lock_guard lock(mutex);
  auto& device = devices()[ordinal];
  if (device != nullptr && !context_lives(*device)) (void)device.release();  // some still name it
  if (device == nullptr) device = open_device(ordinal);
  return *device;
}

void load_kernels(const GpuDevice& device) {
  std::lock_guard lock(mutex);
  GpuDevice& own = *devices().at(device.ordinal);
  if (own.limits.max_threads == 0) throw cu::Error("blocks of this GPU are too small", -1);
  if (own.kernels[kVariants - 1][2][kDataTypes - 1] == nullptr) load_module(own);
}

NvLink nvlink_between(const unsigned char (&a)[16], const unsigned char (&b)[16]) {
  return Nvml::get().between(uuid_text(a), uuid_text(b));
}

cu::Device ordinal_of(const unsigned char (&uuid)[16]) {
  int count = 0;
  if (cu::api().device_count(&count) != cu::kSuccess) return -1;
  for (cu::Device device = 0; device < count; ++device) {
    cu::Uuid seen{};
    const bool known = cu::api().device_uuid(&seen, device) == cu::kSuccess;
    if (known && std::memcmp(seen.bytes, uuid, sizeof(uuid)) == 0) return device;
  }
  return -1;
}

}  // namespace shunt
