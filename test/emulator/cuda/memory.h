// Allocations of the emulated machine. GPU memory is a memfd for each allocation, so that peers can
// map it through /proc and nothing stays behind, whoever is killed when.
#pragma once

#include <cuda.h>

#include "address_map.h"

namespace emu {

inline constexpr size_t kGranule = size_t{2} << 20;

// All throw Failure. None may be called while a lock of the driver is held.
void* allocate_device(Context& context, size_t bytes);
void free_device(void* pointer);
void* allocate_host(Context& context, size_t bytes);
void free_host(void* pointer);
void register_host(Context& context, void* pointer, size_t bytes);
void unregister_host(void* pointer);

CUipcMemHandle export_device(const void* pointer);
void* open_peer(Context& context, const CUipcMemHandle& handle);
void close_peer(Context& context, void* pointer);

// Unmaps everything of a context that goes.
void release_all(Context& context);

// The region in which [pointer, pointer + bytes) lies; misuse if there is none.
Region require_region(const void* pointer, size_t bytes, const char* what);

// `context` may touch this region: its own GPU's, pinned, or of a peer that it has been granted.
bool may_touch(const Context& context, const Region& region);

}  // namespace emu
