#include "tools/doctor/host.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace shunt::doctor {
namespace {

namespace fs = std::filesystem;

// Inodes of the namespaces that a kernel starts with (include/linux/proc_ns.h).
constexpr uint64_t kFirstIpcNamespace = 0xEFFFFFFF, kFirstPidNamespace = 0xEFFFFFFC;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string line_of(const fs::path& path) {
  const std::string text = text_of(path);
  return text.substr(0, text.find('\n'));
}

uint64_t inode_of(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

std::optional<uint64_t> limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return limit.rlim_cur;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool any_entry(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  return !error && entries != fs::directory_iterator();
}

std::vector<std::string> container_hints(const std::string& root) {
  std::vector<std::string> hints;
  for (const char* file : {"/.dockerenv", "/run/.containerenv"}) {
    if (is_there(root + file)) hints.push_back(file);
  }
  const std::string groups = text_of(root + "/proc/self/cgroup");
  for (const char* word : {"docker", "kubepods", "containerd", "libpod", "lxc", "slurm"}) {
    if (groups.find(word) != std::string::npos)
      hints.push_back(std::string(word) + " in /proc/self/cgroup");
  }
  for (const char* name :
       {"container", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}) {
    if (std::getenv(name) != nullptr) hints.push_back(std::string(name) + " is set");
  }
  return hints;
}

uint32_t word_at(const std::string& bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i)
    word |= uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return word;
}

}  // namespace

Host read_host(const std::string& root) {
  Host host;
  host.kernel_driver = line_of(root + "/proc/driver/nvidia/version");
  host.container = container_hints(root);
  host.pid_namespace = inode_of(root + "/proc/self/ns/pid");
  host.ipc_namespace = inode_of(root + "/proc/self/ns/ipc");
  host.host_pid_namespace = host.pid_namespace == kFirstPidNamespace;
  host.host_ipc_namespace = host.ipc_namespace == kFirstIpcNamespace;
  struct statvfs shm {};
  if (statvfs((root + "/dev/shm").c_str(), &shm) == 0) {
    host.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
    host.shm_free_bytes = uint64_t{shm.f_bavail} * shm.f_frsize;
  }
  host.memlock_bytes = limit_of(RLIMIT_MEMLOCK);
  host.open_files = limit_of(RLIMIT_NOFILE);
  host.iommu = any_entry(root + "/sys/class/iommu");
  const char* const home = std::getenv("HOME");
  std::vector<std::string> files = {"/etc/nccl.conf"};
  if (home != nullptr) files.push_back(std::string(home) + "/.nccl.conf");
  for (const std::string& file : files) {
    if (is_there(root + file)) host.nccl_files.push_back(file);
  }
  return host;
}

// PCI Express Base Specification: extended capabilities from byte 256 on (16 bits of id, 4 of
// version, 12 of the next one's place), ACS is 0x000d, its control register 6 bytes in; bit 2
// redirects requests, bit 3 completions.
std::optional<bool> acs_redirects(const std::string& config_space) {
  constexpr uint32_t kAcs = 0x000d;
  constexpr size_t kMostCapabilities = 100;  // a damaged list may be a circle
  size_t at = 256;
  for (size_t i = 0; i < kMostCapabilities && at >= 256 && at + 8 <= config_space.size(); ++i) {
    const uint32_t header = word_at(config_space, at);
    if ((header & 0xffff) == kAcs) return (word_at(config_space, at + 4) >> 16 & 0b1100) != 0;
    at = header >> 20;
  }
  if (config_space.size() <= 256) return {};
  return false;
}

PciPlace read_pci_place(const std::string& bus_id, const std::string& root) {
  PciPlace place;
  std::error_code error;
  const fs::path device = fs::canonical(root + "/sys/bus/pci/devices/" + bus_id, error);
  if (error || bus_id.empty()) return place;
  const std::string node = line_of(device / "numa_node");
  if (!node.empty()) place.numa_node = std::atoi(node.c_str());
  place.iommu_domain = line_of(device / "iommu_group/type");
  for (fs::path bridge = device.parent_path(); is_there(bridge / "config");
       bridge = bridge.parent_path()) {
    const std::optional<bool> redirects = acs_redirects(text_of(bridge / "config"));
    if (!redirects) place.acs_told = false;
    if (redirects.value_or(false)) place.acs.push_back(bridge.filename());
  }
  return place;
}

}  // namespace shunt::doctor
