// What the operating system tells without any library of NVIDIA's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shunt::doctor {

struct Host {
  std::string kernel_driver;           // of /proc/driver/nvidia/version; empty: not loaded
  std::vector<std::string> container;  // what hints at one; empty: none
  uint64_t pid_namespace = 0, ipc_namespace = 0;  // inodes; 0: not told
  bool host_pid_namespace = false,
       host_ipc_namespace = false;             // the ones that the kernel started with
  uint64_t shm_bytes = 0, shm_free_bytes = 0;  // of /dev/shm
  std::optional<uint64_t> memlock_bytes;       // nullopt: unlimited
  std::optional<uint64_t> open_files;
  bool iommu = false;                   // an IOMMU is at work
  std::vector<std::string> nccl_files;  // NCCL's configuration files that exist
};

// How one PCI function is seen by IOMMU and switches.
struct PciPlace {
  int numa_node = -1;  // -1: not told, or one node
  std::string
      iommu_domain;  // "identity" (passed through), "DMA", "DMA-FQ"; empty: none or not told
  std::vector<std::string> acs;  // bridges above that redirect peer-to-peer traffic
  bool acs_told = true;          // false: their configuration is shown to root only
};

// `root`: in front of every path, for tests.
Host read_host(const std::string& root = "");
PciPlace read_pci_place(const std::string& bus_id, const std::string& root = "");

// Of a bridge's configuration space: whether Access Control Services redirect requests or
// completions between its ports; nullopt: the part that says so is not there.
std::optional<bool> acs_redirects(const std::string& config_space);

}  // namespace shunt::doctor
