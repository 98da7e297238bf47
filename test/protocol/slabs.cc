#include "test/protocol/slabs.h"

#include <cstring>

namespace sim {

using shunt::Protocol;

Slabs::Slabs(uint32_t ranks, size_t cap, const shunt::DeviceLimits& limits,
             shunt::Placement placement)
    : ranks_(ranks),
      cap_(cap),
      limits_(limits),
      geometry_(plan_geometry(ranks, cap, limits, placement)),
      slab_bytes_((geometry_.slab_bytes() + geometry_.host_bytes() + 4095) / 4096 * 4096) {}

void Slabs::fill(const std::vector<uint32_t>& first_counters) {
  const size_t sentinel = geometry_.sentinel_offset();
  for (uint32_t reader = 0; reader < ranks_; ++reader) {
    for (uint32_t l = 0; l < geometry_.lanes; ++l) lane(reader, l).counter = first_counters[l];
    for (uint32_t writer = 0; writer < ranks_; ++writer) {
      if (writer == reader) continue;
      for (uint32_t part = 0; part < geometry_.parts; ++part) {
        std::memset(mailbox(reader, writer) + part * geometry_.part_bytes() + sentinel, 0xff,
                    size_t{geometry_.lanes} * geometry_.sentinel_packets * shunt::kPacketBytes);
      }
    }
  }
}

shunt::LaneState& Slabs::lane(uint32_t rank, uint32_t lane) const {
  return reinterpret_cast<shunt::LaneState*>(slab(rank) + shunt::Geometry::kLaneOffset)[lane];
}
uint32_t& Slabs::stop(uint32_t rank) const {
  return *reinterpret_cast<uint32_t*>(slab(rank) + shunt::Geometry::kStopOffset);
}
shunt::HostBoard& Slabs::board(uint32_t rank) const {
  return *reinterpret_cast<shunt::HostBoard*>(slab(ranks_) + rank * kBoardBytes);
}

shunt::LaunchPlan Slabs::plan(const Calls& calls) const {
  const Call& first = calls.front();
  if (calls.size() == 1) return plan_launch(first.bytes(), first.type, limits_);
  size_t packets = 0;
  for (const Call& call : calls) packets += call.packets();
  return plan_launch(packets * shunt::payload_of(first.protocol()), first.type, limits_);
}

shunt::GroupedParams Slabs::params(const Calls& calls, uint32_t rank, const std::vector<MessageAt>& where) const {
  shunt::PeerLink peers[shunt::kMaxPeers] = {};
  for (uint32_t i = 0; i + 1 < ranks_; ++i) {
    const uint32_t peer = shunt::peer_at(rank, i);
    peers[i] = {mailbox(peer, rank), mailbox(rank, peer)};
  }
  const Call& first = calls.front();
  shunt::GroupedParams params{};
  static_cast<shunt::AllReduceParams&>(params) =
      common_params(geometry_, first.protocol(), rank, slab(rank), &board(rank), peers);
  if (calls.size() == 1) {
    set_call(params, plan(calls), where[0].send, where[0].recv, first.count, first.type, first.op, first.number);
    return params;
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    add_message(params, first.protocol(), where[i].send, where[i].recv, calls[i].bytes());
  }
  set_grouped_call(params, plan(calls), first.type, first.op, first.number);
  return params;
}

std::string Slabs::describe(const void* address) const {
  const auto* at = static_cast<const unsigned char*>(address);
  if (at < memory_ || at >= memory_ + memory_bytes()) return "an address outside";
  if (at >= slab(ranks_)) return "a board";
  const auto rank = static_cast<uint32_t>((at - memory_) / slab_bytes_);
  const auto offset = static_cast<size_t>(at - slab(rank));
  const std::string of_slab = "slab " + std::to_string(rank);
  if (offset < geometry_.mailbox_offset(0)) return of_slab + " offset " + std::to_string(offset);
  const size_t in_mailboxes = offset - geometry_.mailbox_offset(0);
  const auto index = static_cast<uint32_t>(in_mailboxes / geometry_.mailbox_bytes());
  const bool shared = is_shared(geometry_.placement);
  if (shared ? index > 0 : index + 1 >= ranks_) return of_slab + " past its mailboxes";
  const size_t in_mailbox = in_mailboxes % geometry_.mailbox_bytes();
  const size_t in_part = in_mailbox % geometry_.part_bytes();
  std::string out = (shared ? "outbox " + std::to_string(rank)
                            : "mailbox (" + std::to_string(rank) + "," +
                                  std::to_string(shunt::peer_at(rank, index)) + ")") +
                    " part " + std::to_string(in_mailbox / geometry_.part_bytes());
  if (in_part < geometry_.flagged_offset()) {
    return out + " header " + std::to_string(in_part / shunt::kPacketBytes);
  }
  const bool sentinel = in_part >= geometry_.sentinel_offset();
  const size_t packet =
      (in_part - (sentinel ? geometry_.sentinel_offset() : geometry_.flagged_offset())) /
      shunt::kPacketBytes;
  const uint32_t capacity = sentinel ? geometry_.sentinel_packets : geometry_.flagged_packets;
  return out + (sentinel ? " sentinel" : " flagged") + " lane " +
         std::to_string(packet / capacity) + " packet " + std::to_string(packet % capacity);
}

}  // namespace sim
