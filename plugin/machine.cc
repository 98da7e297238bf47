#include "plugin/machine.h"

#include <dlfcn.h>

#include <cctype>
#include <stdexcept>

namespace shunt::tuner {
namespace {

// NVML's header is in no package that the build needs (NVML API reference, "Device Queries").
using Device = struct Opaque*;
constexpr int kOk = 0;
constexpr int kP2pRead = 0, kP2pWrite = 1, kP2pNvlink = 2;  // nvmlGpuP2PCapsIndex_t
constexpr unsigned kMostLinks = 18;                         // NVML_NVLINK_MAX_LINKS
struct PciInfo {                                            // nvmlPciInfo_t
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];  // "00000000:1A:00.0"
};

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
    get("nvmlDeviceGetPciInfo_v3", pci);
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
  int (*p2p)(Device, Device, int, int*) = nullptr;  // may be missing, as the next three
  int (*ancestor)(Device, Device, int*) = nullptr;
  int (*nvlink)(Device, unsigned, int*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;

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

std::string why_no_p2p(const Nvml& nvml, Device a, Device b) {
  int status = -1;
  for (const int capability : {kP2pRead, kP2pWrite}) {
    if (nvml.p2p == nullptr || nvml.p2p(a, b, capability, &status) != kOk)
      return "NVML does not tell";
    if (status != kOk) break;
  }
  switch (status) {  // nvmlGpuP2PStatus_t
    case kOk:
      return "";
    case 1:
      return "the chipset does not support it";
    case 2:
      return "the GPU does not support it";
    case 3:
      return "the topology does not support it";
    case 4:
      return "disabled by a registry key of the driver";
    case 5:
      return "not supported";
    default:
      return "for an unknown reason";
  }
}

std::string bus_id_of(const Nvml& nvml, Device device) {
  PciInfo info{};
  if (nvml.pci == nullptr || nvml.pci(device, &info) != kOk) return "";
  info.id[sizeof info.id - 1] = '\0';
  std::string id = info.id;
  if (id.size() == 16) id = id.substr(4);  // sysfs has four digits of the domain
  for (char& c : id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return id;
}

Fingerprint facts_of(const Nvml& nvml, std::vector<Device>& devices) {
  Fingerprint facts;
  char text[96] = {};
  Nvml::check(nvml.driver(text, sizeof text - 1), "nvmlSystemGetDriverVersion");
  facts.driver = text;
  unsigned count = 0;
  Nvml::check(nvml.count(&count), "nvmlDeviceGetCount_v2");
  devices.resize(count);
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

}  // namespace

Fingerprint machine_facts() {
  const Nvml nvml;
  std::vector<Device> devices;
  return facts_of(nvml, devices);
}

MachineDetails machine_details() {
  const Nvml nvml;
  std::vector<Device> devices;
  MachineDetails details;
  details.facts = facts_of(nvml, devices);
  for (size_t a = 0; a < devices.size(); ++a) {
    details.bus_ids.push_back(bus_id_of(nvml, devices[a]));
    for (size_t b = a + 1; b < devices.size(); ++b) {
      details.no_p2p.push_back(why_no_p2p(nvml, devices[a], devices[b]));
    }
  }
  return details;
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
