// What the 64 bytes of an IPC handle say: a file of a process, to be opened through /proc.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "address_map.h"

namespace emu {

struct IpcName {
  char magic[8];
  int32_t process;
  int32_t file;
  uint64_t bytes;
  uint64_t nonce;
  int32_t gpu;
};
static_assert(sizeof(IpcName) <= sizeof(CUipcMemHandle));

// The memfd's name. It shows in /proc/PID/fd, so an opener sees whether the number was used anew.
std::string memfd_name(uint64_t nonce);

CUipcMemHandle handle_of(const Region& region);
// Throws CUDA_ERROR_INVALID_HANDLE for bytes that are no handle.
IpcName name_in(const CUipcMemHandle& handle);
// Throws CUDA_ERROR_INVALID_HANDLE if the process or the allocation is gone.
int open_file(const IpcName& name);

}  // namespace emu
