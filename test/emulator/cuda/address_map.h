// Which memory lies where in this process. A device pointer of the emulator is a host address, so
// this map is what tells GPU memory, peer memory and pinned memory apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>

namespace emu {

struct Context;

enum class Place {
  kDevice,      // cuMemAlloc of this process
  kPeer,        // opened from another process by its IPC handle
  kHost,        // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
};

struct Region {
  uintptr_t base = 0;
  size_t bytes = 0;   // as asked for
  size_t mapped = 0;  // as mapped: whole granules
  Place place = Place::kDevice;
  int gpu = -1;  // physical; whose memory it is; -1: host
  Context* context = nullptr;
  int file = -1;       // kDevice
  uint64_t nonce = 0;  // kDevice, kPeer: tells an allocation from an earlier one of the same number
  int opened = 0;      // kPeer: how often

  bool host() const { return place == Place::kHost || place == Place::kRegistered; }
  bool contains(const void* address, size_t size) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= base && at - base <= bytes && size <= bytes - (at - base);
  }
};

class AddressMap {
 public:
  void add(const Region& region);
  bool remove(const void* base);
  // The region that holds `address`, or ends there.
  std::optional<Region> find(const void* address) const;
  // Whether one of these bytes belongs to a region.
  bool overlaps(const void* address, size_t bytes) const;
  // The mapping of a peer's allocation in `context`, counted up by `by`; nothing if there is none.
  std::optional<Region> count_peer(const Context& context, uint64_t nonce, int by);
  // The first region of `context`.
  std::optional<Region> any_of(const Context& context) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Region> regions_;
};

AddressMap& address_map();

}  // namespace emu
