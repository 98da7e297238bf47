#include "ipc.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "report.h"

namespace emu {
namespace {

constexpr char kMagic[8] = {'e', 'm', 'u', '-', 'i', 'p', 'c', '1'};

}  // namespace

std::string memfd_name(uint64_t nonce) {
  char text[40];
  std::snprintf(text, sizeof(text), "emulated-gpu-%016llx", static_cast<unsigned long long>(nonce));
  return text;
}

CUipcMemHandle handle_of(const Region& region) {
  IpcName name{};
  std::memcpy(name.magic, kMagic, sizeof(kMagic));
  name.process = getpid();
  name.file = region.file;
  name.bytes = region.bytes;
  name.nonce = region.nonce;
  name.gpu = region.gpu;
  CUipcMemHandle handle{};
  std::memcpy(&handle, &name, sizeof(name));
  return handle;
}

IpcName name_in(const CUipcMemHandle& handle) {
  IpcName name;
  std::memcpy(&name, &handle, sizeof(name));
  if (std::memcmp(name.magic, kMagic, sizeof(kMagic)) != 0) fail(CUDA_ERROR_INVALID_HANDLE);
  return name;
}

int open_file(const IpcName& name) {
  const std::string path =
      "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail(CUDA_ERROR_INVALID_HANDLE);
  // Asked of the opened file, not of the peer's: the peer may close and reuse the number in
  // between.
  char target[256] = {};
  const std::string mine = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = ::readlink(mine.c_str(), target, sizeof(target) - 1);
  if (length < 0 || std::strstr(target, memfd_name(name.nonce).c_str()) == nullptr) {
    ::close(file);
    fail(CUDA_ERROR_INVALID_HANDLE);
  }
  return file;
}

}  // namespace emu
