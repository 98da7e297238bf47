#include "memory.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "context.h"
#include "ipc.h"
#include "report.h"
#include "settings.h"

namespace emu {
namespace {

size_t in_granules(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

// Fresh GPU memory holds what was there before. Only so much is filled: pages cost real memory.
void poison(void* memory, size_t bytes) {
  std::memset(memory, 0xa5, std::min(bytes, 2 * kGranule));
}

void* map(size_t bytes, int file) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) fail(CUDA_ERROR_OUT_OF_MEMORY);
  return memory;
}

// Takes the region out of the map before its pages go: another thread may get the same addresses at
// once.
void drop(const Region& region) {
  address_map().remove(reinterpret_cast<void*>(region.base));
  if (region.place != Place::kRegistered) {
    ::munmap(reinterpret_cast<void*>(region.base), region.mapped);
  }
  if (region.file >= 0) ::close(region.file);
  if (region.place == Place::kDevice) region.context->used -= region.mapped;
}

// The region that begins at `pointer`.
Region require_whole(const void* pointer, bool right_place(Place), const char* what) {
  const std::optional<Region> region = address_map().find(pointer);
  if (!region || region->base != reinterpret_cast<uintptr_t>(pointer) ||
      !right_place(region->place)) {
    misuse(CUDA_ERROR_INVALID_VALUE, "%s: %p is not allocated (freed twice?)", what, pointer);
  }
  return *region;
}

}  // namespace

void* allocate_device(Context& context, size_t bytes) {
  if (bytes == 0) fail(CUDA_ERROR_INVALID_VALUE);
  if (bytes > settings().alloc_fail_above) fail(CUDA_ERROR_OUT_OF_MEMORY);
  Region region{.bytes = bytes,
                .mapped = in_granules(bytes),
                .place = Place::kDevice,
                .gpu = context.gpu,
                .context = &context};
  if (context.used.fetch_add(region.mapped) + region.mapped > settings().memory) {
    context.used -= region.mapped;
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  if (::getrandom(&region.nonce, sizeof(region.nonce), 0) != sizeof(region.nonce)) {
    region.nonce = reinterpret_cast<uintptr_t>(&region) ^ static_cast<uint64_t>(getpid());
  }
  region.file = ::memfd_create(memfd_name(region.nonce).c_str(), MFD_CLOEXEC);
  if (region.file < 0 || ::ftruncate(region.file, static_cast<off_t>(region.mapped)) != 0) {
    if (region.file >= 0) ::close(region.file);
    context.used -= region.mapped;
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  void* memory = map(region.mapped, region.file);
  poison(memory, bytes);
  region.base = reinterpret_cast<uintptr_t>(memory);
  address_map().add(region);
  return memory;
}

void free_device(void* pointer) {
  if (pointer == nullptr) return;
  const Region region = require_whole(
      pointer, [](Place place) { return place == Place::kDevice; }, "cuMemFree");
  // The real one waits for the device too: who frees while a kernel waits for this thread hangs.
  region.context->wait_idle();
  drop(region);
}

void* allocate_host(Context& context, size_t bytes) {
  if (bytes == 0) fail(CUDA_ERROR_INVALID_VALUE);
  if (settings().host_alloc_fail) fail(CUDA_ERROR_OUT_OF_MEMORY);
  Region region{.bytes = bytes,
                .mapped = (bytes + 4095) / 4096 * 4096,
                .place = Place::kHost,
                .context = &context};
  void* memory = map(region.mapped, -1);
  poison(memory, bytes);
  region.base = reinterpret_cast<uintptr_t>(memory);
  address_map().add(region);
  return memory;
}

void free_host(void* pointer) {
  if (pointer == nullptr) return;
  const Region region = require_whole(
      pointer, [](Place place) { return place == Place::kHost; }, "cuMemFreeHost");
  region.context->wait_idle();
  drop(region);
}

void register_host(Context& context, void* pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) fail(CUDA_ERROR_INVALID_VALUE);
  if (settings().host_alloc_fail) fail(CUDA_ERROR_OUT_OF_MEMORY);
  if (address_map().overlaps(pointer, bytes)) fail(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  address_map().add({.base = reinterpret_cast<uintptr_t>(pointer),
                     .bytes = bytes,
                     .mapped = bytes,
                     .place = Place::kRegistered,
                     .context = &context});
}

void unregister_host(void* pointer) {
  const std::optional<Region> region = address_map().find(pointer);
  if (!region || region->place != Place::kRegistered) fail(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  region->context->wait_idle();
  drop(*region);
}

CUipcMemHandle export_device(const void* pointer) {
  if (settings().no_ipc) fail(CUDA_ERROR_NOT_SUPPORTED);
  const std::optional<Region> region = address_map().find(pointer);
  if (!region || region->place != Place::kDevice) {
    misuse(CUDA_ERROR_INVALID_VALUE, "cuIpcGetMemHandle: %p is not this process's GPU memory",
           pointer);
  }
  return handle_of(*region);
}

void* open_peer(Context& context, const CUipcMemHandle& handle) {
  if (settings().no_ipc) fail(CUDA_ERROR_NOT_SUPPORTED);
  const std::vector<int>& failing = settings().ipc_fail;
  if (std::find(failing.begin(), failing.end(), context.gpu) != failing.end()) {
    fail(CUDA_ERROR_MAP_FAILED);
  }
  const IpcName name = name_in(handle);
  if (name.process == getpid()) fail(CUDA_ERROR_INVALID_CONTEXT);
  if (!can_access(context.gpu, name.gpu)) fail(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  if (const auto already = address_map().count_peer(context, name.nonce, +1)) {
    return reinterpret_cast<void*>(already->base);
  }
  const int file = open_file(name);
  Region region{.bytes = name.bytes,
                .mapped = in_granules(name.bytes),
                .place = Place::kPeer,
                .gpu = name.gpu,
                .context = &context,
                .nonce = name.nonce,
                .opened = 1};
  void* memory = nullptr;
  try {
    memory = map(region.mapped, file);
  } catch (const Failure&) {
    ::close(file);
    throw;
  }
  ::close(file);
  region.base = reinterpret_cast<uintptr_t>(memory);
  address_map().add(region);
  return memory;
}

void close_peer(Context& context, void* pointer) {
  const Region region = require_whole(
      pointer, [](Place place) { return place == Place::kPeer; }, "cuIpcCloseMemHandle");
  if (region.context != &context) fail(CUDA_ERROR_INVALID_CONTEXT);
  const auto left = address_map().count_peer(context, region.nonce, -1);
  if (left && left->opened == 0) drop(*left);
}

void release_all(Context& context) {
  while (const std::optional<Region> region = address_map().any_of(context)) drop(*region);
}

Region require_region(const void* pointer, size_t bytes, const char* what) {
  const std::optional<Region> region = address_map().find(pointer);
  if (!region || !region->contains(pointer, bytes)) {
    misuse(CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes at %p are in no allocation (freed?)", what,
           bytes, pointer);
  }
  return *region;
}

bool may_touch(const Context& context, const Region& region) {
  if (region.host() || region.gpu == context.gpu) return true;
  if (region.place == Place::kPeer && region.context == &context) return true;
  return context.has_peer(region.gpu);
}

}  // namespace emu
