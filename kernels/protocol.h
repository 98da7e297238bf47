// The protocol's arithmetic: counters, flags, tags and where each lane's packets lie. Everything here is
// a pure function of facts that all ranks of a communicator share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/datatype.h"

namespace shunt {

inline constexpr uint32_t kMaxRanks = 16;
inline constexpr uint32_t kMaxPeers = kMaxRanks - 1;
inline constexpr uint32_t kMaxLanes = 128;
inline constexpr uint32_t kPacketBytes = 16;
inline constexpr uint32_t kPushParts = 2;    // halves of a mailbox that a lane uses in turn (push)
inline constexpr uint32_t kSharedParts = 4;  // parts of an outbox likewise (pull, host)

// ---- call counters and flags -------------------------------------------------------------------------
// A lane's call counter is also the flag of its flagged packets. 0 is the flag of a wiped packet, so no
// call may have it; at the wrap a whole cycle of parts is skipped: skipping one value would use the same
// part in two consecutive calls.
inline constexpr uint32_t kFirstCounter = 4;
inline constexpr uint32_t kFlagPeriod = 1u << 16;

inline constexpr uint32_t kClaimed = 0;  // what a lane's counter is while a call runs

constexpr uint32_t next_counter(uint32_t counter) {
  return counter + 1 == 0 ? kFirstCounter : counter + 1;
}
// `parts` is a power of two: a division would delay every call.
constexpr uint32_t part_of(uint32_t counter, uint32_t parts) { return counter & (parts - 1); }

// Once a period, in one call for each part, the lane zeroes its whole flagged region: a slot that only
// rare large calls use must not still hold the flag of a call one counter wrap ago.
constexpr bool zeroes_flags(uint32_t counter, uint32_t parts) {
  return counter % kFlagPeriod < parts;
}

static_assert(part_of(next_counter(0xffffffffu), 2) != part_of(0xffffffffu, 2));
static_assert(part_of(next_counter(0xffffffffu), 4) == (part_of(0xffffffffu, 4) + 1) % 4);

// ---- the tag of a call -------------------------------------------------------------------------------
// What the header packet carries and the ranks compare. `number`: order of recording on the communicator
// (1, 2, ...), modulo 2^24. `bytes` modulo 2^28. A call of several messages has their sizes' digest there.
struct CallTag {
  uint32_t number;
  uint32_t bytes;
  DataType type;
  ReduceOp op;
  Protocol protocol;
  uint32_t messages = 1;
  uint32_t digest = 0;  // of the sizes, modulo 2^21; 0 for one message
};
inline constexpr uint32_t kMaxMessages = 128;

constexpr uint64_t pack(const CallTag& tag) {
  const bool several = tag.messages > 1;
  const uint64_t extent = several ? (tag.messages - 1) | uint64_t{tag.digest} << 7 : uint64_t{tag.bytes};
  return (uint64_t{tag.number} & 0xffffff) | (extent & 0xfffffff) << 24 | uint64_t(tag.type) << 52 |
         uint64_t(tag.op) << 57 | uint64_t(tag.protocol) << 61 | uint64_t{several} << 63;
}
constexpr CallTag unpack_tag(uint64_t word) {
  const auto extent = static_cast<uint32_t>(word >> 24 & 0xfffffff);
  const bool several = word >> 63 != 0;
  return {static_cast<uint32_t>(word & 0xffffff), several ? 0 : extent,
          static_cast<DataType>(word >> 52 & 0x1f), static_cast<ReduceOp>(word >> 57 & 0xf),
          static_cast<Protocol>(word >> 61 & 0x3), several ? (extent & 0x7f) + 1 : 1,
          several ? extent >> 7 : 0};
}
// The digest of the sizes so far and one more.
constexpr uint32_t add_to_digest(uint32_t digest, uint32_t bytes) {
  uint64_t mixed = (uint64_t{digest} << 32 | bytes) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
  return static_cast<uint32_t>(mixed >> 43);
}

// ---- what lies in a slab -----------------------------------------------------------------------------
// One lane's state in its rank's own device memory.
struct alignas(32) LaneState {
  uint32_t counter;  // the lane's next call; kClaimed while a kernel is in the lane
  uint32_t unused[3];
  uint32_t left[kSharedParts];  // sentinel packets that the last call left in each part of the outbox
};

// What says which call's lanes are entering: how many have, and the sum of their calls' numbers (modulo 2^24). Zeroed
// by the last of a call's lanes to enter. Lanes of two calls, each of which finds its lane free, could
// otherwise take them in different orders.
constexpr uint32_t entry_of(uint64_t tag) { return 1 | static_cast<uint32_t>(tag) << 8; }
// Whether all lanes that have entered are of the call with this tag.
constexpr bool entered_alone(uint32_t entering, uint64_t tag) { return entering == (entering & 0xff) * entry_of(tag); }
static_assert(kMaxLanes < 0x100);

// Why a lane stopped otherwise than by data. Sticky, in the rank's own device memory.
enum class Stop : uint32_t { kNone = 0, kAborted = 1, kTimedOut = 2, kTrapped = 3 };

// What the host tells waiting kernels (in pinned host memory).
enum class HostOrder : uint32_t { kRun = 0, kAbort = 1, kTrap = 2 };

// What waiting kernels tell the host. Written as one 16-byte store, about once a millisecond for as long
// as a wait lasts; the host clears it to see whether it comes again.
struct alignas(16) WaitReport {
  uint64_t tag;           // pack(CallTag); never 0 for a call
  uint32_t counter;       // the lane's call counter
  uint32_t peer_and_one;  // the rank that is waited for, + 1; 0: no report
};

enum class Fault : uint32_t { kNone = 0, kTagMismatch = 1, kEnteredTwice = 2 };
struct alignas(16) FaultReport {
  uint64_t mine;    // tag of this rank's call
  uint64_t theirs;  // tag that the peer sent
  uint32_t peer;    // rank of the peer
  Fault fault;
  uint32_t unused[2];
};

// One rank's pinned host page.
struct HostBoard {
  alignas(128) uint32_t order;  // HostOrder, written by the host only
  alignas(128) WaitReport waits[kMaxLanes];  // indexed by lane
  alignas(128) FaultReport fault;
};

// Where the packets lie on their way. kPush: in the reader's GPU, a mailbox for each ordered pair. kPull, kHost:
// one outbox a rank that all its peers read, in the writer's GPU or in host memory that all of them share.
enum class Placement : uint32_t { kPush = 0, kPull = 1, kHost = 2 };
inline constexpr uint32_t kPlacements = 3;
constexpr const char* name_of(Placement placement) {
  return placement == Placement::kPush ? "push" : placement == Placement::kPull ? "pull" : "host";
}
constexpr bool is_shared(Placement placement) { return placement != Placement::kPush; }
constexpr uint32_t parts_of(Placement placement) {
  return is_shared(placement) ? kSharedParts : kPushParts;
}

// Where things lie in a slab and in each of its mailboxes. Mailbox (d, s), in d's slab, is mailbox
// number peer_index(d, s); an outbox is built as a mailbox is. A mailbox has `parts` parts, each with a line
// that holds the header packet, then the lanes' flagged regions, then the lanes' sentinel regions; no two lanes
// and no two protocols share a packet. All offsets are in bytes.
struct Geometry {
  uint32_t ranks = 0;
  uint32_t lanes = 0;
  uint32_t parts = 0;
  uint32_t flagged_packets = 0;   // of one lane in one part
  uint32_t sentinel_packets = 0;  // of one lane in one part
  Placement placement = Placement::kPush;

  bool operator==(const Geometry&) const = default;

  constexpr size_t flagged_offset() const { return kHeaderBytes; }
  constexpr size_t sentinel_offset() const {
    return flagged_offset() + size_t{lanes} * flagged_packets * kPacketBytes;
  }
  constexpr size_t part_bytes() const {
    return sentinel_offset() + size_t{lanes} * sentinel_packets * kPacketBytes;
  }
  constexpr size_t mailbox_bytes() const { return part_bytes() * parts; }

  static constexpr size_t kHeaderBytes = 128;
  static constexpr size_t kStopOffset = 0;
  static constexpr size_t kEnteringOffset = 4;  // used by calls of several lanes; see entry_of
  static constexpr size_t kLaneOffset = 128;
  constexpr size_t mailbox_offset(uint32_t index) const {
    const size_t head = kLaneOffset + size_t{lanes} * sizeof(LaneState);
    return (head + 4095) / 4096 * 4096 + index * mailbox_bytes();
  }
  // Mailboxes in a slab.
  constexpr uint32_t mailboxes() const {
    return placement == Placement::kPush ? ranks - 1 : placement == Placement::kPull ? 1 : 0;
  }
  constexpr size_t slab_bytes() const { return mailbox_offset(mailboxes()); }
  // Of this rank's outbox in host memory.
  constexpr size_t host_bytes() const { return placement == Placement::kHost ? mailbox_bytes() : 0; }
};

// Index of `peer` among the peers of `rank`, in rank order.
constexpr uint32_t peer_index(uint32_t rank, uint32_t peer) { return peer < rank ? peer : peer - 1; }
constexpr uint32_t peer_at(uint32_t rank, uint32_t index) { return index < rank ? index : index + 1; }

// ---- the argument of the kernel ----------------------------------------------------------------------
// Two mailboxes. Push: (peer, this rank) and (this rank, peer). Shared: this rank's outbox and the peer's.
struct PeerLink {
  unsigned char* write;
  const unsigned char* read;
};

// Passed by value, so a captured call keeps it. Nothing in it may change from replay to replay. What every
// call of two ranks reads comes first: each launch meets a cold constant cache, line by line.
struct AllReduceParams {
  unsigned char* slab;  // this rank's
  const void* send;     // `bytes` of elements at any element alignment; device memory of this rank
  void* recv;           // likewise; may equal send
  uint32_t bytes;       // of the message
  uint32_t packets_per_lane;
  uint32_t data_offset;  // of this call's protocol region within a part
  uint32_t lane_bytes;   // of one lane in that region
  uint32_t part_bytes;
  uint8_t lanes;       // blocks
  uint8_t ranks;
  uint8_t parts;
  uint8_t data_warps;  // of a block; service warps come after them
  uint8_t rank;
  uint8_t op;        // ReduceOp
  uint8_t two_shot;  // packets have owners that add them up
  uint64_t tag;      // pack(CallTag)
  PeerLink peers[kMaxPeers];  // in rank order, this rank left out
  uint32_t flagged_offset;  // of the flagged and the sentinel regions within a part,
  uint32_t sentinel_offset;
  uint32_t flagged_lane_bytes;  // and of one lane in them
  uint32_t sentinel_lane_bytes;
  HostBoard* board;     // device address of the pinned page
  uint64_t timeout_ns;  // 0 except in the probe: give up (Stop::kTimedOut) after this long in one wait
};

// Several messages of one type and operation in one call: one after the other, each begins with a packet of its own.
struct Message {
  const void* send;
  void* recv;
  uint32_t bytes;
  uint32_t begin;  // its first packet of the call
};
// `bytes` is all packets' payload; `send` and `recv` are not used.
struct GroupedParams : AllReduceParams {
  uint32_t message_count;
  Message messages[kMaxMessages];
};
static_assert(sizeof(GroupedParams) <= 4096, "what a kernel may be given");

// One outbox for all peers (pull, host); the writer wipes it.
constexpr bool has_outbox(const AllReduceParams& params) { return params.parts == kSharedParts; }

// Of the kernel "shunt_hold", which holds a stream back.
inline constexpr char kHoldKernel[] = "shunt_hold";
struct HoldParams {
  const uint32_t* go;  // device address of a pinned word; not 0: go on
  uint64_t limit_ns;   // goes on by itself after this long
};

// Two shots: who adds up packet `packet` of lane `lane`. A warp's packets have one owner, so that what goes to
// one peer is one run of memory.
constexpr uint32_t owner_of(uint32_t packet, uint32_t lane, uint32_t ranks) {
  return (packet / 32 + lane) % ranks;
}

}  // namespace shunt
