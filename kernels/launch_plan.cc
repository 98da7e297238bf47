#include "kernels/launch_plan.h"

namespace shunt {
namespace {

constexpr uint32_t kUsualLanes = 64, kUsualThreads = 256;

constexpr uint32_t divide_up(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

void set_shape(AllReduceParams& params, const LaunchPlan& plan, ReduceOp op, const CallTag& tag) {
  params.op = static_cast<uint8_t>(op);
  params.tag = pack(tag);
  params.lanes = static_cast<uint8_t>(plan.lanes);
  params.packets_per_lane = plan.packets_per_lane;
  params.data_warps = static_cast<uint8_t>(plan.threads / 32);
  params.two_shot = plan.two_shot ? 1 : 0;
}

}  // namespace

LaunchPlan plan_launch(size_t bytes, DataType type, const DeviceLimits& limits) {
  LaunchPlan plan{};
  plan.protocol = protocol_of(type);
  const uint32_t packets = std::max(1u, packets_for(plan.protocol, bytes));
  // One packet a thread. Small lanes first, up to 64, since a lane ends with its slowest warp; then larger ones;
  // then more of them, and only then the largest.
  const auto share = [&](uint32_t lanes) { return divide_up(divide_up(packets, lanes), 32) * 32; };
  const uint32_t usual = std::min(kUsualThreads, share(std::min(kUsualLanes, limits.max_lanes)));
  plan.threads = std::min(limits.max_threads,
                          std::max({usual, limits.least_threads, share(limits.max_lanes)}));
  plan.threads = std::min(plan.threads, divide_up(packets, 32) * 32);
  plan.lanes = std::min(limits.max_lanes, divide_up(packets, plan.threads));
  plan.packets_per_lane = divide_up(packets, plan.lanes);
  plan.two_shot = size_t{packets} * kPacketBytes >= limits.two_shot_from;
  return plan;
}

Geometry plan_geometry(uint32_t ranks, size_t cap, const DeviceLimits& limits,
                       Placement placement) {
  // The larger the call, the more threads has a lane, and packets beyond one a thread.
  const auto capacity = [&](Protocol protocol) {
    const DataType type = protocol == Protocol::kSentinel ? DataType::kFloat32 : DataType::kInt32;
    const LaunchPlan most = plan_launch(cap, type, limits);
    return std::max(most.threads, most.packets_per_lane);
  };
  Geometry geometry;
  geometry.ranks = ranks;
  geometry.placement = placement;
  geometry.parts = parts_of(placement);
  geometry.lanes = limits.max_lanes;
  geometry.flagged_packets = capacity(Protocol::kFlagged);
  geometry.sentinel_packets = capacity(Protocol::kSentinel);
  return geometry;
}

std::string kernel_name(DataType type, Protocol protocol, Variant variant, uint32_t peer_batch) {
  constexpr const char* kNames[kVariants] = {"_fast_", "_any_", "_grouped_"};
  return std::string("shunt_all_reduce_") + name_of(type) + "_" + name_of(protocol) +
         kNames[static_cast<size_t>(variant)] + std::to_string(peer_batch);
}

AllReduceParams common_params(const Geometry& geometry, Protocol protocol, uint32_t rank,
                              unsigned char* slab, HostBoard* board,
                              const PeerLink (&peers)[kMaxPeers]) {
  const bool sentinel = protocol == Protocol::kSentinel;
  AllReduceParams params{};
  params.slab = slab;
  params.board = board;
  params.rank = static_cast<uint8_t>(rank);
  params.ranks = static_cast<uint8_t>(geometry.ranks);
  params.parts = static_cast<uint8_t>(geometry.parts);
  params.part_bytes = static_cast<uint32_t>(geometry.part_bytes());
  params.flagged_offset = static_cast<uint32_t>(geometry.flagged_offset());
  params.sentinel_offset = static_cast<uint32_t>(geometry.sentinel_offset());
  params.flagged_lane_bytes = geometry.flagged_packets * kPacketBytes;
  params.sentinel_lane_bytes = geometry.sentinel_packets * kPacketBytes;
  params.data_offset = sentinel ? params.sentinel_offset : params.flagged_offset;
  params.lane_bytes = sentinel ? params.sentinel_lane_bytes : params.flagged_lane_bytes;
  std::copy(std::begin(peers), std::end(peers), std::begin(params.peers));
  return params;
}

void set_call(AllReduceParams& params, const LaunchPlan& plan, const void* send, void* recv,
              size_t count, DataType type, ReduceOp op, uint32_t number) {
  params.send = send;
  params.recv = recv;
  params.bytes = static_cast<uint32_t>(count * size_of(type));
  set_shape(params, plan, op, {number, params.bytes, type, op, plan.protocol});
}

void add_message(GroupedParams& params, Protocol protocol, const void* send, void* recv, size_t bytes) {
  const uint32_t payload = payload_of(protocol);
  params.messages[params.message_count++] = {send, recv, static_cast<uint32_t>(bytes), params.bytes / payload};
  params.bytes += packets_for(protocol, bytes) * payload;
}

void set_grouped_call(GroupedParams& params, const LaunchPlan& plan, DataType type, ReduceOp op, uint32_t number) {
  uint32_t digest = 0;
  for (uint32_t i = 0; i < params.message_count; ++i) digest = add_to_digest(digest, params.messages[i].bytes);
  set_shape(params, plan, op, {number, params.bytes, type, op, plan.protocol, params.message_count, digest});
}

}  // namespace shunt
