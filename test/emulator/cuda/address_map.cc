#include "address_map.h"

#include <mutex>

namespace emu {

void AddressMap::add(const Region& region) {
  std::unique_lock lock(mutex_);
  regions_[region.base] = region;
}

bool AddressMap::remove(const void* base) {
  std::unique_lock lock(mutex_);
  return regions_.erase(reinterpret_cast<uintptr_t>(base)) != 0;
}

std::optional<Region> AddressMap::find(const void* address) const {
  std::shared_lock lock(mutex_);
  auto after = regions_.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (after == regions_.begin()) return std::nullopt;
  const Region& region = std::prev(after)->second;
  if (!region.contains(address, 0)) return std::nullopt;
  return region;
}

bool AddressMap::overlaps(const void* address, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::shared_lock lock(mutex_);
  const auto after = regions_.lower_bound(begin + bytes);
  if (after == regions_.begin()) return false;
  const Region& last = std::prev(after)->second;
  return last.base + last.bytes > begin;
}

std::optional<Region> AddressMap::count_peer(const Context& context, uint64_t nonce, int by) {
  std::unique_lock lock(mutex_);
  for (auto& [base, region] : regions_) {
    if (region.place != Place::kPeer || region.context != &context || region.nonce != nonce)
      continue;
    region.opened += by;
    return region;
  }
  return std::nullopt;
}

std::optional<Region> AddressMap::any_of(const Context& context) const {
  std::shared_lock lock(mutex_);
  for (const auto& [base, region] : regions_) {
    if (region.context == &context) return region;
  }
  return std::nullopt;
}

AddressMap& address_map() {
  static AddressMap& instance = *new AddressMap;
  return instance;
}

}  // namespace emu
