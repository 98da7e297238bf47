// The unit of every mailbox access, and how it moves when nothing is in the way.
#pragma once

#include <cstdint>

namespace emu {

struct Packet {
  uint64_t low;
  uint64_t high;
};

// Two 8-byte words that do not tear.
inline void store_at_once(void* address, Packet packet) {
  auto* words = static_cast<uint64_t*>(address);
  __atomic_store_n(words, packet.low, __ATOMIC_RELAXED);
  __atomic_store_n(words + 1, packet.high, __ATOMIC_RELAXED);
}

inline Packet load_at_once(const void* address) {
  const auto* words = static_cast<const uint64_t*>(address);
  return {__atomic_load_n(words, __ATOMIC_RELAXED), __atomic_load_n(words + 1, __ATOMIC_RELAXED)};
}

}  // namespace emu
