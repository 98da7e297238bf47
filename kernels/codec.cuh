// How a packet carries data and says that it has arrived.
#pragma once

#include "kernels/numbers.cuh"
#include "kernels/user_buffer.cuh"

namespace shunt {

// Sentinel: 16 bytes of data; a word of all ones is "not here yet".
// Flagged: {data, flag, data, flag}, 8 bytes of data.
// Data packets have their payload in the first words, whichever the protocol.
template <DataType kType, Protocol kProtocol, bool kWhole = false>
struct Codec {
  using T = typename ElementOf<kType>::type;
  static constexpr uint32_t kPayload = kProtocol == Protocol::kSentinel ? 16 : 8;  // bytes
  static constexpr uint32_t kWords = kPayload / 4;
  static constexpr Word kWord =
      kProtocol == Protocol::kFlagged || sizeof(T) == 8 ? Word::k8 : Word::k4;
  using User = UserBuffer<kPayload, sizeof(T), kWhole>;

  // What a writer sends for its data. Words that read as "not here yet" lose their top bit: a NaN before
  // and after, in every float type. `data` is changed alike, so that all ranks add the same bits.
  SHUNT_DEVICE static Packet encode(Packet& data, uint32_t flag) {
    if constexpr (kProtocol == Protocol::kFlagged) {
      return {{data.w[0], flag, data.w[1], flag}};
    } else if constexpr (kWord == Word::k8) {
      if ((data.w[0] & data.w[1]) == kOnes) data.w[1] = kSpared;
      if ((data.w[2] & data.w[3]) == kOnes) data.w[3] = kSpared;
      return data;
    } else {
      SHUNT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) data.w[i] = data.w[i] == kOnes ? kSpared : data.w[i];
      return data;
    }
  }
  // What encode(data, 0) gave, with another flag.
  SHUNT_DEVICE static Packet with_flag(Packet sent, uint32_t flag, bool header) {
    if (kProtocol == Protocol::kFlagged || header) sent.w[1] = sent.w[3] = flag;
    return sent;
  }
  SHUNT_DEVICE static Packet decode(Packet p) {
    if constexpr (kProtocol == Protocol::kFlagged) p.w[1] = p.w[2];
    return p;
  }
  // Words arrive in any order: all of them must be here.
  SHUNT_DEVICE static bool arrived(Packet p, uint32_t flag, bool header) {
    if (kProtocol == Protocol::kFlagged || header) {
      return p.w[1] == flag && p.w[3] == flag;
    } else if constexpr (kWord == Word::k8) {
      return (p.w[0] & p.w[1]) != kOnes && (p.w[2] & p.w[3]) != kOnes;
    } else {
      return p.w[0] != kOnes && p.w[1] != kOnes && p.w[2] != kOnes && p.w[3] != kOnes;
    }
  }
  // The header packet is flagged in every protocol: ranks whose calls differ in that find each other's headers.
  SHUNT_DEVICE static Packet header(uint64_t tag) {
    const auto low = static_cast<uint32_t>(tag), high = static_cast<uint32_t>(tag >> 32);
    return kProtocol == Protocol::kFlagged ? Packet{{low, high, 0, 0}} : Packet{{low, 0, high, 0}};
  }
  // Of a header as header() gave it, or as it arrived.
  SHUNT_DEVICE static uint64_t tag_of_own(Packet p) {
    return kProtocol == Protocol::kFlagged ? join(p.w[0], p.w[1]) : join(p.w[0], p.w[2]);
  }
  SHUNT_DEVICE static uint64_t tag_of_arrived(Packet p) { return join(p.w[0], p.w[2]); }
  static constexpr Packet wiped() { return {{kOnes, kOnes, kOnes, kOnes}}; }

 private:
  static constexpr uint32_t kOnes = 0xffffffffu;
  static constexpr uint32_t kSpared = 0x7fffffffu;
};

}  // namespace shunt
