#include "shim/engine/scratch.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

namespace shunt {
namespace {

std::mutex mutex;
std::vector<Scratch::Blocks>& free_blocks() {
  static auto& blocks = *new std::vector<Scratch::Blocks>;
  return blocks;
}

bool take(const GpuDevice& device, size_t bytes, Scratch::Blocks& out) {
  std::lock_guard lock(mutex);
  auto& blocks = free_blocks();
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const Scratch::Blocks& b) {
    return b.owner == &device && b.bytes == bytes;
  });
  if (found == blocks.end()) return false;
  out = *found;
  blocks.erase(found);
  return true;
}

}  // namespace

Scratch::Scratch(const GpuDevice& device, size_t bytes, bool needed) {
  if (take(device, bytes, blocks_)) return;
  cu::ContextScope current(device.context);
  blocks_.owner = &device;
  blocks_.bytes = bytes;
  void* host = nullptr;
  const cu::Result pinned =
      cu::api().host_alloc(&host, bytes, cu::kHostAllocPortable | cu::kHostAllocDeviceMap);
  if (!needed) cu::check(pinned, "cuMemHostAlloc");
  const cu::Result result = cu::api().mem_alloc(&blocks_.device, bytes);
  if (pinned != cu::kSuccess) {
    cu::check(result, "cuMemAlloc");
    host = operator new(bytes);
  }
  blocks_.host = static_cast<unsigned char*>(host);
  if (result == cu::kSuccess) return;
  if (!needed) {
    cu::api().host_free(host);
    cu::check(result, "cuMemAlloc");
  }
  SHUNT_CU(host_device_pointer, &blocks_.device, host, 0);
  blocks_.shared = true;
}

Scratch::~Scratch() {
  std::lock_guard lock(mutex);
  free_blocks().push_back(blocks_);
}

}  // namespace shunt
