// Host memory that the processes of a communicator share: an anonymous file (memfd) that peers open through
// /proc while preparing lasts. No name stays, whatever is killed when.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/engine/driver_api.h"

namespace shunt {

// How another process finds it.
struct SharedMemoryName {
  int32_t fd;      // of the owner's process
  uint32_t unused;
  uint64_t inode;  // so that a descriptor that was reused meanwhile is noticed
};

// Pinned memory with an address for all GPUs of this process. Everything throws cu::Error; the context of a
// device must be current. Unmapped by unmap() only: a GPU may still write to it when its owner is gone.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { close(); }

  // Makes `bytes` of zeros. Space is reserved before it is touched: where memory is short this is a refusal
  // and no SIGBUS later. `numa_node`: preferred; -1: none.
  void create(size_t bytes, int numa_node);
  // Maps what process `pid` has made.
  void open(int64_t pid, const SharedMemoryName& name, size_t bytes);
  // Nobody can open it from now on. Once all peers have it.
  void close() noexcept;
  void unmap() noexcept;

  SharedMemoryName name() const { return {fd_, 0, inode_}; }
  unsigned char* host() const { return host_; }
  unsigned char* device() const { return device_; }

 private:
  void map(int fd, size_t bytes, int numa_node);
  void pin();

  int fd_ = -1;
  uint64_t inode_ = 0;
  size_t bytes_ = 0;
  unsigned char* host_ = nullptr;
  unsigned char* device_ = nullptr;
};

// NUMA node of a PCI device ("0000:17:00.0"), -1 if it is not known.
int numa_node_of(const char* pci_bus_id);

}  // namespace shunt
