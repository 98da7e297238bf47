// The user's buffers, as packets, at any element alignment. How a pointer is aligned may differ from rank
// to rank: it decides how this rank loads and stores, and nothing else.
#pragma once

#include "kernels/device_access.cuh"

namespace shunt {

// kBytes: payload of a packet, 8 or 16. kElement: bytes of an element. kWhole: all packets are whole and aligned.
template <uint32_t kBytes, uint32_t kElement, bool kWhole>
struct UserBuffer {
  // Where packet `packet` of `base` lies, of a message of `total` bytes.
  struct Place {
    uintptr_t at;
    uint32_t left;  // bytes from there to the end of the message
    SHUNT_DEVICE bool whole() const { return kWhole || (at % kBytes == 0 && left >= kBytes); }
    SHUNT_DEVICE uint32_t bytes() const { return left < kBytes ? left : kBytes; }
  };
  SHUNT_DEVICE static Place place(const void* base, uint32_t packet, uint32_t total) {
    return {reinterpret_cast<uintptr_t>(base) + packet * kBytes, total - packet * kBytes};
  }

  // Zeroes beyond the end of the message.
  SHUNT_DEVICE static Packet load(Place from) {
    if (!SHUNT_LIKELY(from.whole())) return load_slow(from.at, from.bytes());
    if constexpr (kBytes == 16) {
      return device::load_user16(from.at);
    } else {
      return packet_of(device::load_user8(from.at), 0);
    }
  }

  SHUNT_DEVICE static void store(Place to, Packet p) {
    if (!SHUNT_LIKELY(to.whole())) {
      store_slow(to.at, to.bytes(), p);
    } else if constexpr (kBytes == 16) {
      device::store_user16(to.at, p);
    } else {
      device::store_user8(to.at, join(p.w[0], p.w[1]));
    }
  }

 private:
  // Only aligned words that hold wanted bytes are read, all at once; then they are shifted into place.
  using Unit = std::conditional_t<kElement == 8, uint64_t, uint32_t>;

  SHUNT_COLD_MEMBER static Packet load_slow(uintptr_t from, uint32_t bytes) {
    constexpr uint32_t kUnits = kBytes / sizeof(Unit) + 1;
    const auto shift = static_cast<uint32_t>(from % sizeof(Unit)) * 8;
    const auto* units = reinterpret_cast<const Unit*>(from - from % sizeof(Unit));
    const uint32_t reach = static_cast<uint32_t>(from % sizeof(Unit)) + bytes;
    Unit u[kUnits];
    SHUNT_UNROLL
    for (uint32_t i = 0; i < kUnits; ++i) u[i] = i * sizeof(Unit) < reach ? units[i] : 0;
    uint64_t out[2] = {0, 0};
    SHUNT_UNROLL
    for (uint32_t i = 0; i + 1 < kUnits; ++i) {
      uint64_t word = u[i];
      if constexpr (sizeof(Unit) == 4) {
        word = ((word | uint64_t{u[i + 1]} << 32) >> shift) & 0xffffffffu;
        out[i / 2] |= word << (i % 2 * 32);
      } else {
        out[i] = word;  // an 8-byte element is aligned to 8 bytes
      }
    }
    // What lies beyond the buffer must not be sent: it could be all ones.
    if (bytes < 8) {
      out[0] &= (uint64_t{1} << (bytes * 8)) - 1;
      out[1] = 0;
    } else if (bytes < 16) {
      out[1] &= (uint64_t{1} << ((bytes - 8) * 8)) - 1;
    }
    return packet_of(out[0], out[1]);
  }

  SHUNT_COLD_MEMBER static void store_slow(uintptr_t to, uint32_t bytes, Packet p) {
    using Element = std::conditional_t<
        kElement == 1, uint8_t,
        std::conditional_t<kElement == 2, uint16_t,
                           std::conditional_t<kElement == 4, uint32_t, uint64_t>>>;
    for (uint32_t at = 0; at < bytes; at += kElement) {
      const uint64_t word = at < 8 ? join(p.w[0], p.w[1]) : join(p.w[2], p.w[3]);
      *reinterpret_cast<Element*>(to + at) = static_cast<Element>(word >> (at % 8 * 8));
    }
  }
};

}  // namespace shunt
