// Launch shapes: a pure function of what all ranks agreed on and of (bytes, datatype). No pointer, stream
// or clock may enter here: ranks that disagree on a shape hang or compute a wrong sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/protocol.h"

namespace shunt {

// Largest value that max_threads may take: the kernels' register budget is made for it.
inline constexpr uint32_t kMaxDataThreads = 448;  // with the service warps, 16 warps: 128 registers each

// What launches look like: what the devices of a communicator allow (the smallest value over all ranks) and
// what was found to be fast.
struct DeviceLimits {
  uint32_t max_threads = kMaxDataThreads;  // data threads of a lane; a multiple of 32
  uint32_t max_lanes = kMaxLanes;
  uint32_t least_threads = 64;  // data threads of a lane where there are packets for them
  // Bytes in mailboxes (one shot) from which packets are sent to their owners instead of to all.
  uint32_t two_shot_from = ~0u;

  bool operator==(const DeviceLimits&) const = default;
};

// After a block's data threads come one warp that claims the lane and exchanges
// headers, and with an outbox one warp that wipes it.
inline constexpr uint32_t kHeaderThreads = 32;
inline constexpr uint32_t kWipeThreads = 32;
inline constexpr uint32_t kMaxBlockThreads = kMaxDataThreads + kHeaderThreads + kWipeThreads;
constexpr uint32_t block_threads(const AllReduceParams& params) {
  return params.data_warps * 32u + kHeaderThreads + (has_outbox(params) ? kWipeThreads : 0);
}

struct LaunchPlan {
  Protocol protocol;
  uint32_t lanes;             // blocks
  uint32_t threads;           // data threads of a block; see block_threads
  uint32_t packets_per_lane;  // the last lane may have fewer
  bool two_shot;
};

// Bytes of data in a packet.
constexpr uint32_t payload_of(Protocol protocol) { return protocol == Protocol::kSentinel ? 16 : 8; }
constexpr uint32_t elements_per_packet(Protocol protocol, DataType type) {
  return payload_of(protocol) / size_of(type);
}
constexpr uint32_t packets_for(Protocol protocol, size_t bytes) {
  return static_cast<uint32_t>((bytes + payload_of(protocol) - 1) / payload_of(protocol));
}

LaunchPlan plan_launch(size_t bytes, DataType type, const DeviceLimits& limits);

// Mailboxes that hold every call of 1..cap bytes under plan_launch.
Geometry plan_geometry(uint32_t ranks, size_t cap, const DeviceLimits& limits,
                       Placement placement = Placement::kPush);

// Kernels are specialised by datatype, protocol, variant and the number of peers polled at once (1, 3 or 7).
// kFast: sums in one shot of whole, aligned packets, at most one a thread, which is nearly every call; short enough
// to stay in the instruction cache from call to call. kAny: every one message. Both speak the same protocol, so ranks
// with differently aligned buffers may choose differently. kGrouped: several messages.
enum class Variant : uint32_t { kFast = 0, kAny = 1, kGrouped = 2 };
inline constexpr uint32_t kVariants = 3;
template <Variant kVariant>
using ParamsOf = std::conditional_t<kVariant == Variant::kGrouped, GroupedParams, AllReduceParams>;
inline Variant variant_of(const LaunchPlan& plan, ReduceOp op, const void* send, const void* recv,
                             size_t bytes) {
  const bool one_each = op == ReduceOp::kSum && !plan.two_shot && plan.packets_per_lane <= plan.threads;
  const bool whole = (reinterpret_cast<uintptr_t>(send) | reinterpret_cast<uintptr_t>(recv) | bytes) %
                         payload_of(plan.protocol) == 0;
  return one_each && whole ? Variant::kFast : Variant::kAny;
}
inline constexpr uint32_t kPeerBatches[] = {1, 3, 7};
constexpr uint32_t peer_batch_for(uint32_t ranks) { return ranks <= 2 ? 1 : ranks <= 4 ? 3 : 7; }

// Entry point in the fat binary, e.g. "shunt_all_reduce_bfloat16_sentinel_fast_1".
std::string kernel_name(DataType type, Protocol protocol, Variant variant, uint32_t peer_batch);

// What all calls of `rank` with this protocol have in common. `peers[i]`: the mailboxes shared with peer i, as
// this rank addresses them. `slab`, `board`: as the device addresses them.
AllReduceParams common_params(const Geometry& geometry, Protocol protocol, uint32_t rank,
                              unsigned char* slab, HostBoard* board,
                              const PeerLink (&peers)[kMaxPeers]);
// The call itself. `number`: its place in the order of recording.
void set_call(AllReduceParams& params, const LaunchPlan& plan, const void* send, void* recv,
              size_t count, DataType type, ReduceOp op, uint32_t number);

// A call of several messages, which are added one by one before it is set. At most kMaxMessages of them, with no more
// packets than one message of the cap has.
void add_message(GroupedParams& params, Protocol protocol, const void* send, void* recv, size_t bytes);
void set_grouped_call(GroupedParams& params, const LaunchPlan& plan, DataType type, ReduceOp op, uint32_t number);

}  // namespace shunt
