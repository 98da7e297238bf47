// The GPUs of the emulated machine: who they are, which of them this process sees, what they can
// do. Shared by the driver and the NVML stand-in.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace emu {

using Uuid = std::array<unsigned char, 16>;

// The same in every process and every run.
Uuid uuid_of(int gpu);
// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".
std::string text_of(const Uuid& uuid);
// "0000:1a:00.0".
std::string pci_bus_id_of(int gpu);
int pci_bus_of(int gpu);

// Physical numbers in the order of CUDA_VISIBLE_DEVICES, which holds numbers or (prefixes of)
// UUIDs; the first entry that names no GPU ends the list, an entry that comes twice empties it, as
// in the driver.
const std::vector<int>& visible_gpus();

// `gpu` can read and write the memory of `peer`.
bool can_access(int gpu, int peer);
bool joined_by_nvlink(int gpu, int peer);

// CUdevice_attribute by number; overridden by EMU_<name of the attribute>. False: no such
// attribute.
bool device_attribute(int gpu, int attribute, int* value);

}  // namespace emu
