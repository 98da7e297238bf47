#include "shim/engine/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace shunt {
namespace {

[[noreturn]] void fail(const std::string& what, int error) {
  throw cu::Error("shared host memory: " + what + ": " + std::strerror(error), -1);
}

// mbind(2) without libnuma. Where it is refused (containers often do), memory is only farther away.
void prefer_node(void* at, size_t bytes, int node) {
  constexpr int kPreferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h
  unsigned long mask[16] = {};
  constexpr int kBits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= static_cast<int>(std::size(mask)) * kBits) return;
  mask[node / kBits] = 1ul << (node % kBits);
  (void)syscall(SYS_mbind, at, bytes, kPreferred, mask, std::size(mask) * kBits, 0);
}

}  // namespace

int numa_node_of(const char* pci_bus_id) {
  std::string folder = pci_bus_id;
  for (char& c : folder) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  std::ifstream file("/sys/bus/pci/devices/" + folder + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

void SharedMemory::create(size_t bytes, int numa_node) {
  fd_ = memfd_create("nccl-shunt", MFD_CLOEXEC);
  if (fd_ < 0) fail("memfd_create", errno);
  struct stat info {};
  if (fchmod(fd_, S_IRUSR | S_IWUSR) != 0 || fstat(fd_, &info) != 0) fail("fstat", errno);
  inode_ = info.st_ino;
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail("ftruncate", errno);
  map(fd_, bytes, numa_node);
  // Pages are taken here, where the policy of the mapping holds.
  if (fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0) fail("fallocate", errno);
  pin();
}

void SharedMemory::open(int64_t pid, const SharedMemoryName& name, size_t bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(name.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("opening the peer's", errno);
  struct stat info {};
  const bool same = fstat(fd, &info) == 0 && info.st_ino == name.inode && S_ISREG(info.st_mode) &&
                    static_cast<size_t>(info.st_size) == bytes;
  try {
    if (!same) fail("the peer's is another file", ESTALE);
    map(fd, bytes, -1);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  pin();
}

void SharedMemory::map(int fd, size_t bytes, int numa_node) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) fail("mmap", errno);
  host_ = static_cast<unsigned char*>(at);
  bytes_ = bytes;
  // A forked child must not keep it.
  (void)madvise(at, bytes, MADV_DONTFORK);
  prefer_node(at, bytes, numa_node);
}

void SharedMemory::pin() {
  SHUNT_CU(host_register, host_, bytes_, cu::kHostRegisterPortable | cu::kHostRegisterDeviceMap);
  cu::Ptr device = 0;
  SHUNT_CU(host_device_pointer, &device, host_, 0);
  device_ = reinterpret_cast<unsigned char*>(device);
}

void SharedMemory::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void SharedMemory::unmap() noexcept {
  close();
  if (host_ == nullptr) return;
  try {
    if (device_ != nullptr) cu::api().host_unregister(host_);
    munmap(host_, bytes_);
  } catch (const cu::Error&) {
    // No driver: nothing was pinned.
  }
  host_ = device_ = nullptr;
}

}  // namespace shunt
