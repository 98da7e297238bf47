#include "machine.h"

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "settings.h"

namespace emu {
namespace {

struct Attribute {
  CUdevice_attribute number;
  const char* name;
  int value;
};

#define EMU_ATTRIBUTE(name, value) \
  { CU_DEVICE_ATTRIBUTE_##name, #name, value }
// Launches must stay small: every emulated thread is a fiber, and 2 cores run all ranks.
constexpr Attribute kAttributes[] = {
    EMU_ATTRIBUTE(MAX_THREADS_PER_BLOCK, 96),
    EMU_ATTRIBUTE(MAX_BLOCK_DIM_X, 64),
    EMU_ATTRIBUTE(MAX_BLOCK_DIM_Y, 64),
    EMU_ATTRIBUTE(MAX_BLOCK_DIM_Z, 64),
    EMU_ATTRIBUTE(MAX_GRID_DIM_X, 2147483647),
    EMU_ATTRIBUTE(MAX_GRID_DIM_Y, 65535),
    EMU_ATTRIBUTE(MAX_GRID_DIM_Z, 65535),
    EMU_ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK, 49152),
    EMU_ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 49152),
    EMU_ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 102400),
    EMU_ATTRIBUTE(MAX_REGISTERS_PER_BLOCK, 65536),
    EMU_ATTRIBUTE(TOTAL_CONSTANT_MEMORY, 65536),
    EMU_ATTRIBUTE(WARP_SIZE, 32),
    EMU_ATTRIBUTE(CLOCK_RATE, 1000000),
    EMU_ATTRIBUTE(GPU_OVERLAP, 1),
    EMU_ATTRIBUTE(MULTIPROCESSOR_COUNT, 4),
    EMU_ATTRIBUTE(CAN_MAP_HOST_MEMORY, 1),
    EMU_ATTRIBUTE(CONCURRENT_KERNELS, 1),
    EMU_ATTRIBUTE(ASYNC_ENGINE_COUNT, 2),
    EMU_ATTRIBUTE(UNIFIED_ADDRESSING, 1),
    EMU_ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR, 9),
    EMU_ATTRIBUTE(COMPUTE_CAPABILITY_MINOR, 0),
    EMU_ATTRIBUTE(STREAM_PRIORITIES_SUPPORTED, 1),
    EMU_ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR, 2048),
    EMU_ATTRIBUTE(MAX_BLOCKS_PER_MULTIPROCESSOR, 32),
    EMU_ATTRIBUTE(L2_CACHE_SIZE, 33554432),
    EMU_ATTRIBUTE(COOPERATIVE_LAUNCH, 1),
    EMU_ATTRIBUTE(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
    EMU_ATTRIBUTE(HOST_REGISTER_SUPPORTED, 1),
};
#undef EMU_ATTRIBUTE

uint64_t scrambled(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// -1: names none.
int gpu_named(const std::string& entry) {
  if (entry.rfind("GPU-", 0) == 0) {
    int found = -1;
    for (int gpu = 0; gpu < settings().gpus; ++gpu) {
      if (text_of(uuid_of(gpu)).rfind(entry, 0) != 0) continue;
      if (found >= 0) return -1;  // a prefix of two
      found = gpu;
    }
    return found;
  }
  char* end = nullptr;
  const long number = std::strtol(entry.c_str(), &end, 10);
  if (entry.empty() || *end != '\0' || number < 0 || number >= settings().gpus) return -1;
  return static_cast<int>(number);
}

std::vector<int> read_visible() {
  std::vector<int> gpus;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    for (int gpu = 0; gpu < settings().gpus; ++gpu) gpus.push_back(gpu);
    return gpus;
  }
  std::istringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const int gpu = gpu_named(entry);
    if (gpu < 0) break;
    for (int earlier : gpus) {
      if (earlier == gpu) return {};
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace

Uuid uuid_of(int gpu) {
  const uint64_t halves[2] = {scrambled(2 * static_cast<uint64_t>(gpu) + 1),
                              scrambled(2 * static_cast<uint64_t>(gpu) + 2)};
  Uuid uuid;
  std::memcpy(uuid.data(), halves, uuid.size());
  return uuid;
}

std::string text_of(const Uuid& uuid) {
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", uuid[i]);
    text += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

int pci_bus_of(int gpu) { return 0x10 + 0x0a * gpu; }

std::string pci_bus_id_of(int gpu) {
  char text[32];
  std::snprintf(text, sizeof(text), "0000:%02x:00.0", static_cast<unsigned>(pci_bus_of(gpu)));
  return text;
}

const std::vector<int>& visible_gpus() {
  static const std::vector<int>& instance = *new std::vector<int>(read_visible());
  return instance;
}

bool can_access(int gpu, int peer) {
  for (const GpuPair& pair : settings().no_p2p) {
    if (pair.covers(gpu, peer)) return false;
  }
  return true;
}

bool joined_by_nvlink(int gpu, int peer) {
  for (const GpuPair& pair : settings().nvlink) {
    if (gpu != peer && (pair.covers(gpu, peer) || pair.covers(peer, gpu))) return true;
  }
  return false;
}

bool device_attribute(int gpu, int attribute, int* value) {
  if (attribute <= 0 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return false;
  *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? pci_bus_of(gpu) : 0;
  for (const Attribute& known : kAttributes) {
    if (known.number != attribute) continue;
    const std::string variable = std::string("EMU_") + known.name;
    *value = static_cast<int>(number_from_environment(variable.c_str(), known.value));
  }
  return true;
}

}  // namespace emu
