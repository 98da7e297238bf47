#include "plugin/machine.h"

#include <dlfcn.h>

#include <stdexcept>

namespace shunt::tuner {
namespace {

// NVML's header is in no package that the build needs (NVML API reference, "Device Queries").
using Device = struct Opaque*;
constexpr int kOk = 0;
constexpr int kP2pRead = 0, kP2pWrite = 1, kP2pNvlink = 2;  // nvmlGpuP2PCapsIndex_t
constexpr unsigned kMostLinks = 18;                         // NVML_NVLINK_MAX_LINKS

class Nvml {
 public:
  Nvml() {
    handle_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw std::runtime_error("no libnvidia-ml.so.1");
    get("nvmlInit_v2", init_);
    get("nvmlShutdown", shutdown_);
    get("nvmlSystemGetDriverVersion", driver);
    get("nvmlDeviceGetCount_v2", count);
    get("nvmlDeviceGetHandleByIndex_v2", device);
    get("nvmlDeviceGetName", name);
    get("nvmlDeviceGetP2PStatus", p2p);
    get("nvmlDeviceGetTopologyCommonAncestor", ancestor);
    get("nvmlDeviceGetNvLinkState", nvlink);
    if (!init_ || !shutdown_ || !driver || !count || !device || !name) {
      throw std::runtime_error("libnvidia-ml.so.1 lacks functions");
    }
    check(init_(), "nvmlInit_v2");
  }
  Nvml(const Nvml&) = delete;
  // The library stays open: NCCL has it open too, and closing it is another thread's risk.
  ~Nvml() { shutdown_(); }

  static void check(int code, const char* call) {
    if (code != kOk) {
      throw std::runtime_error(std::string(call) + " failed (" + std::to_string(code) + ")");
    }
  }

  int (*driver)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*device)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*p2p)(Device, Device, int, int*) = nullptr;  // may be missing, as the next two
  int (*ancestor)(Device, Device, int*) = nullptr;
  int (*nvlink)(Device, unsigned, int*) = nullptr;

 private:
  template <typename F>
  void get(const char* symbol, F& function) {
    function = reinterpret_cast<F>(dlsym(handle_, symbol));
  }

  void* handle_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
};

unsigned active_nvlinks(const Nvml& nvml, Device device) {
  unsigned active = 0;
  for (unsigned link = 0; nvml.nvlink != nullptr && link < kMostLinks; ++link) {
    int state = 0;
    if (nvml.nvlink(device, link, &state) == kOk && state == 1) ++active;
  }
  return active;
}

bool has(const Nvml& nvml, Device a, Device b, int capability) {
  int status = -1;
  return nvml.p2p != nullptr && nvml.p2p(a, b, capability, &status) == kOk && status == kOk;
}

// As `nvidia-smi topo -m` names it; " p2p" where the driver lets the GPUs use each other's memory.
std::string link_text(const Nvml& nvml, Device a, Device b) {
  if (has(nvml, a, b, kP2pNvlink)) return "NV" + std::to_string(active_nvlinks(nvml, a));
  int level = -1;
  if (nvml.ancestor == nullptr || nvml.ancestor(a, b, &level) != kOk) level = -1;
  std::string text;
  switch (level) {  // nvmlGpuTopologyLevel_t
    case 0:
      text = "INT";
      break;
    case 10:
      text = "PIX";
      break;
    case 20:
      text = "PXB";
      break;
    case 30:
      text = "PHB";
      break;
    case 40:
      text = "NODE";
      break;
    case 50:
      text = "SYS";
      break;
    default:
      text = "unknown";
  }
  return has(nvml, a, b, kP2pRead) && has(nvml, a, b, kP2pWrite) ? text + " p2p" : text;
}

}  // namespace

Fingerprint machine_facts() {
  const Nvml nvml;
  Fingerprint facts;
  char text[96] = {};
  Nvml::check(nvml.driver(text, sizeof text - 1), "nvmlSystemGetDriverVersion");
  facts.driver = text;
  unsigned count = 0;
  Nvml::check(nvml.count(&count), "nvmlDeviceGetCount_v2");
  std::vector<Device> devices(count);
  for (unsigned i = 0; i < count; ++i) {  // NVML's order is that of the bus ids
    Nvml::check(nvml.device(i, &devices[i]), "nvmlDeviceGetHandleByIndex_v2");
    char name[96] = {};
    Nvml::check(nvml.name(devices[i], name, sizeof name - 1), "nvmlDeviceGetName");
    facts.gpus.emplace_back(name);
  }
  for (unsigned a = 0; a < count; ++a) {
    for (unsigned b = a + 1; b < count; ++b) {
      facts.links.push_back(link_text(nvml, devices[a], devices[b]));
    }
  }
  return facts;
}

std::string nccl_version_text(int version) {
  if (version < 2000) return "";
  // 2.8 and older counted 1000 for the major version (nccl.h, NCCL_VERSION).
  const int major = version >= 10000 ? version / 10000 : version / 1000;
  const int rest = version >= 10000 ? version % 10000 : version % 1000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." +
         std::to_string(rest % 100);
}

std::string nccl_version_at(const void* address) {
  Dl_info info{};
  if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  // NCCL may be in the process by RTLD_LOCAL, twice, or part of the program: ask the very file.
  void* const file = dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  void* const handle = file != nullptr ? file : dlopen(nullptr, RTLD_NOW);
  if (handle == nullptr) return "";
  int version = 0;
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"));
  const bool told = get != nullptr && get(&version) == 0;
  dlclose(handle);
  return told ? nccl_version_text(version) : "";
}

}  // namespace shunt::tuner
