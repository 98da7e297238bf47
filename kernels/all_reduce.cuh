// The kernel. Each lane (block) stores its packets where the peers look for them, polls the same packets from
// every peer, adds in rank order and stores the result (one shot); or sends each packet to its owner, which
// adds and sends the sum (two shots). No fence, no barrier between ranks.
// Why each step is as it is stands in DESIGN.md, "The kernel"; do not reorder without reading it.
#pragma once

#include "kernels/launch_plan.h"
#include "kernels/sum.cuh"
#include "kernels/wait.cuh"

namespace shunt {

SHUNT_COLD void report_fault(const AllReduceParams& params, Fault fault, uint32_t peer,
                             uint64_t theirs) {
  FaultReport* report = &params.board->fault;
  device::store(&report->mine, packet_of(params.tag, theirs), Word::k8, false);
  device::store(&report->peer, packet_of(join(peer, static_cast<uint32_t>(fault)), 0), Word::k8,
                          false);
  device::store_word(stop_word(params), static_cast<uint32_t>(Stop::kTrapped));
  device::trap();
}

// A peer makes another call: its header came with this lane's counter.
SHUNT_COLD Stop report_mismatch(const AllReduceParams& params, uint32_t index, uint64_t theirs) {
  report_fault(params, Fault::kTagMismatch, peer_at(params.rank, index), theirs);
  return Stop::kTrapped;
}

// Keeps later kernels from running.
SHUNT_COLD void remember_stop(const AllReduceParams& params, Stop reason) {
  device::store_word(stop_word(params), static_cast<uint32_t>(reason));
}

// The message that packet `packet` of the call belongs to.
SHUNT_COLD const Message& message_with(const GroupedParams& params, uint32_t packet) {
  uint32_t at = 0;
  SHUNT_ONE_BY_ONE
  for (uint32_t end = params.message_count; end - at > 1;) {
    const uint32_t middle = (at + end) / 2;
    const bool before = packet < params.messages[middle].begin;
    at = before ? at : middle;
    end = before ? middle : end;
  }
  return params.messages[at];
}

// One lane's part of one call, seen by one thread: a data thread with its packets, or the header thread, whose only
// packet is the header. That goes the same way through the same instructions: instructions are fetched anew by
// each launch, and far code comes late. kPeerBatch: peers polled at once.
template <DataType kType, Protocol kProtocol, Variant kVariant, uint32_t kPeerBatch>
class Lane {
 public:
  using Params = ParamsOf<kVariant>;
  using C = Codec<kType, kProtocol, kVariant == Variant::kFast>;
  static constexpr bool kIsPair = kVariant == Variant::kFast && kPeerBatch == 1;

  // `thread` of `threads` data threads; the next one is the header thread (of lane 0). Everything that does not
  // depend on the call counter happens here, while that is on its way: the addresses, and the first packet.
  SHUNT_DEVICE Lane(const Params& params, uint32_t thread, uint32_t threads)
      : params_(params),
        // Kernels of one peer are launched for two ranks only: no loop is left of this.
        peers_(kPeerBatch == 1 ? 1 : params.ranks - 1u),
        thread_(thread),
        threads_(threads),
        parts_(params.parts),
        part_bytes_(params.part_bytes),
        first_(device::block() * params.packets_per_lane),
        header_(thread == threads && device::block() == 0) {
    const uint32_t packets = (params.bytes + C::kPayload - 1) / C::kPayload;
    const uint32_t left = packets > first_ ? packets - first_ : 0;
    packets_ = left < params.packets_per_lane ? left : params.packets_per_lane;
    end_ = thread < threads ? packets_ : 0;
    if (thread < end_) own_ = own_data(thread);
    data_ = params.data_offset + device::block() * params.lane_bytes + thread * kPacketBytes;
    if (header_) {
      end_ = thread + 1;
      own_ = C::header(params.tag);
      data_ = 0;
    }
    to_ = params.peers[0].write + data_;
    from_ = params.peers[0].read + data_;
    result_ = user_place<true>(first_ + thread);
    device::settle(data_);
    device::settle(end_);
    device::settle(to_);
    device::settle(from_);
    device::settle(result_.at);
    device::settle(result_.left);
    sent_ = C::encode(own_, 0);
    if (kVariant == Variant::kFast && active()) {
      device::pin(to_, from_);
      device::pin(sent_);
      device::pin(parts_, part_bytes_);
    }
  }

  SHUNT_DEVICE bool active() const { return thread_ < end_; }

  // Returns why it stopped, kNone if it finished.
  SHUNT_DEVICE Stop run(uint32_t counter) {
    const uint32_t part = part_of(counter, parts_) * part_bytes_;
    data_ += part;
    to_ += part;
    from_ += part;
    const Packet sent = C::with_flag(sent_, counter, header_);
    Wait wait(params_, counter);
    if constexpr (kVariant == Variant::kFast) {
      send(thread_, sent);
      return sum_up(thread_, own_, wait, false);
    } else {
      return params_.two_shot && !header_ ? two_shots(sent, wait) : one_shot(sent, wait);
    }
  }

  // How many sentinel packets of this lane's outbox the call leaves.
  SHUNT_DEVICE uint32_t leaves() const { return kProtocol == Protocol::kSentinel ? packets_ : 0; }

 private:
  // All packets of a thread are sent before it polls the first.
  SHUNT_DEVICE Stop one_shot(Packet sent, Wait& wait) {
    for (uint32_t p = thread_; p < end_;) {
      send(p, sent);
      p += threads_;
      if (p < end_) sent = outgoing(p, wait);
    }
    Packet own = own_;
    for (uint32_t p = thread_; p < end_;) {
      const Stop reason = sum_up(p, own, wait, false);
      if (reason != Stop::kNone) return reason;
      p += threads_;
      if (p < end_) own = own_packet(p);
    }
    return Stop::kNone;
  }

  // First what others add up, so that nobody waits for a thread that waits itself; then what this rank adds
  // up; then what comes back.
  SHUNT_DEVICE Stop two_shots(Packet sent, Wait& wait) {
    const uint32_t lane = device::block();
    for (uint32_t p = thread_; p < end_;) {
      const uint32_t owner = owner_of(p, lane, params_.ranks);
      if (owner != params_.rank) {
        store(p, has_outbox(params_) ? 0 : peer_index(params_.rank, owner), sent);
      }
      p += threads_;
      if (p < end_) sent = outgoing(p, wait);
    }
    for (uint32_t p = thread_; p < end_; p += threads_) {
      if (owner_of(p, lane, params_.ranks) != params_.rank) continue;
      const Stop reason = sum_up(p, own_packet(p), wait, true);
      if (reason != Stop::kNone) return reason;
    }
    for (uint32_t p = thread_; p < end_; p += threads_) {
      const uint32_t owner = owner_of(p, lane, params_.ranks);
      if (owner == params_.rank) continue;
      const uint32_t index = peer_index(params_.rank, owner);
      Packet sum = load(p, index);
      if (!await(p, index, sum, wait)) return wait.reason();
      C::User::store(place(p), C::decode(sum));
      wipe(p, index);
    }
    return Stop::kNone;
  }

  // Where packet `packet` of the call lies in the user's memory, to read or (kResult) to write.
  template <bool kResult>
  SHUNT_DEVICE typename C::User::Place user_place(uint32_t packet) const {
    if constexpr (kVariant == Variant::kGrouped) {
      const Message& message = message_with(params_, packet);
      return C::User::place(kResult ? message.recv : message.send, packet - message.begin, message.bytes);
    } else {
      return C::User::place(kResult ? params_.recv : params_.send, packet, params_.bytes);
    }
  }
  // Packet p of this rank's own data, as the user has it,
  SHUNT_DEVICE Packet own_data(uint32_t p) const {
    return C::User::load(user_place<false>(first_ + p));
  }
  // as it is added,
  SHUNT_DEVICE Packet own_packet(uint32_t p) const {
    Packet own = own_data(p);
    (void)C::encode(own, 0);
    return own;
  }
  // and as it is sent.
  SHUNT_DEVICE Packet outgoing(uint32_t p, const Wait& wait) const {
    Packet own = own_data(p);
    return C::encode(own, wait.counter());
  }
  SHUNT_DEVICE typename C::User::Place place(uint32_t p) const {
    return kVariant == Variant::kFast || p == thread_ ? result_ : user_place<true>(first_ + p);
  }
  // Of packet p from this thread's first one.
  SHUNT_DEVICE uint32_t beyond(uint32_t p) const {
    return kVariant == Variant::kFast ? 0 : (p - thread_) * kPacketBytes;
  }

  SHUNT_DEVICE void store(uint32_t p, uint32_t index, Packet sent) const {
    unsigned char* to = kPeerBatch == 1 ? to_ : params_.peers[index].write + data_;
    device::store(to + beyond(p), sent, header_ ? Word::k8 : C::kWord, true);
  }
  SHUNT_DEVICE const unsigned char* source(uint32_t p, uint32_t index) const {
    return (kPeerBatch == 1 ? from_ : params_.peers[index].read + data_) + beyond(p);
  }
  SHUNT_DEVICE Packet load(uint32_t p, uint32_t index) const { return device::load(source(p, index)); }

  // To all peers, in the order rank + 1, rank + 2, ...: one stream in and one out at each GPU at a time.
  SHUNT_DEVICE void send(uint32_t p, Packet sent) const {
    if (kPeerBatch == 1 || has_outbox(params_)) return store(p, 0, sent);
    uint32_t peer = params_.rank == peers_ ? 0 : params_.rank;  // index of rank + 1
    for (uint32_t i = 0; i < peers_; ++i) {
      store(p, peer, sent);
      peer = peer + 1 == peers_ ? 0 : peer + 1;
    }
  }

  // Waits until packet p of peer number `index` is whole; `got`: what the first look saw.
  SHUNT_DEVICE bool await(uint32_t p, uint32_t index, Packet& got, Wait& wait) const {
    return wait.until(source(p, index), index, got,
                      [&](Packet packet) { return C::arrived(packet, wait.counter(), header_); });
  }
  // In a mailbox the reader wipes what it has read: the peer writes here again two calls on, after this lane
  // has finished this call.
  SHUNT_DEVICE void wipe(uint32_t p, uint32_t index) const {
    if (kProtocol != Protocol::kSentinel || has_outbox(params_) || header_) return;
    device::store(const_cast<unsigned char*>(source(p, index)), C::wiped(), Word::k8, false);
  }

  // Adds up packet p of all ranks and stores the sum, `to_peers` too; compares headers. Polls up to kPeerBatch
  // peers at once, so that their latencies overlap.
  SHUNT_DEVICE Stop sum_up(uint32_t p, Packet own, Wait& wait, bool to_peers) {
    if constexpr (kIsPair) return sum_up_pair(p, own, wait);
    Sum<C> sum;
    for (uint32_t base = 0; base < peers_; base += kPeerBatch) {
      Packet got[kPeerBatch] = {};
      SHUNT_UNROLL
      for (uint32_t i = 0; i < kPeerBatch; ++i) {
        if (base + i < peers_) got[i] = load(p, base + i);
      }
      SHUNT_UNROLL
      for (uint32_t i = 0; i < kPeerBatch; ++i) {
        if (base + i >= peers_) break;
        if (!await(p, base + i, got[i], wait)) return wait.reason();
        if (header_ && C::tag_of_arrived(got[i]) != C::tag_of_own(own)) {
          return report_mismatch(params_, base + i, C::tag_of_arrived(got[i]));
        }
      }
      if (!header_) add(sum, base, got, own);
      if constexpr (kPeerBatch == 1) break;
    }
    if (header_) return Stop::kNone;
    with_op<kVariant>(params_.op, [&](auto op) {
      Packet total = sum.template result<op()>(params_.ranks);
      if (kVariant != Variant::kFast && to_peers) send(p, C::encode(total, wait.counter()));
      C::User::store(place(p), total);
    });
    for (uint32_t i = 0; i < peers_; ++i) wipe(p, i);
    return Stop::kNone;
  }

  // Two ranks in one shot. The shorter the code behind the wait the better: it comes late, each launch anew.
  SHUNT_DEVICE Stop sum_up_pair(uint32_t p, Packet own, Wait& wait) {
    Packet got = load(p, 0);
    if (!await(p, 0, got, wait)) return wait.reason();
    if (SHUNT_LIKELY(!header_)) {
      const Packet other = C::decode(got);
      const bool own_first = device::kSumsCommute || params_.rank == 0;
      C::User::store(place(p), own_first ? Pair<C>::sum(own, other) : Pair<C>::sum(other, own));
      wipe(p, 0);
      return Stop::kNone;
    }
    const uint64_t theirs = C::tag_of_arrived(got);
    return SHUNT_LIKELY(theirs == C::tag_of_own(own)) ? Stop::kNone : report_mismatch(params_, 0, theirs);
  }

  // Adds peers base, base + 1, ... with this rank's own packet in its place, in rank order.
  SHUNT_DEVICE void add(Sum<C>& sum, uint32_t base, const Packet (&got)[kPeerBatch], Packet own) const {
    const uint32_t left = peers_ - base;
    const uint32_t here = kPeerBatch == 1 || left < kPeerBatch ? left : kPeerBatch;
    const bool last = here == left;
    const uint32_t own_at = params_.rank - base;  // wraps where an earlier batch had it
    const bool has_own = own_at < here || (last && own_at == here);
    const uint32_t count = here + (has_own ? 1 : 0);
    with_op<kVariant>(params_.op, [&](auto op) {
      SHUNT_UNROLL
      for (uint32_t i = 0; i <= kPeerBatch; ++i) {
        if (i >= count) break;
        Packet next = own;
        if (i < kPeerBatch && (i < own_at || !has_own)) next = C::decode(got[i < kPeerBatch ? i : 0]);
        if (i > 0 && has_own && i > own_at) next = C::decode(got[i > 0 ? i - 1 : 0]);
        if (i == 0 && base == 0) {
          sum.start(next);
        } else {
          sum.template add<op()>(next);
        }
      }
    });
  }

  const Params& params_;
  const uint32_t peers_;
  const uint32_t thread_;
  const uint32_t threads_;
  const uint32_t parts_;  // of a mailbox
  const uint32_t part_bytes_;
  const uint32_t first_;  // packet of the call
  const bool header_;     // this is the header thread
  uint32_t packets_;      // of this lane
  uint32_t end_;          // of this thread's packets
  uint32_t data_;         // offset of this thread's first packet in every mailbox,
  unsigned char* to_;     // that packet for peer 0
  const unsigned char* from_;       // and from it,
  typename C::User::Place result_;  // and where the sum goes
  Packet own_{};                    // this rank's: as it is added,
  Packet sent_{};                   // and as it is sent
};

// Takes the lane. Before anything is stored: a second kernel in the lane (two graphs replayed at once, say) would
// use the same counter, and a peer would take its data for this call's. One thread of the block calls this.
struct Claim {
  uint32_t counter = kClaimed;  // the lane's; kClaimed: another kernel is in it
  uint32_t stopped = 0;         // Stop
  uint32_t entering = 0;        // what lanes had entered
};
// `none`: 0, but not so that the compiler sees it. To one word it would add for a whole warp, which takes longer.
SHUNT_DEVICE Claim claim(const AllReduceParams& params, uint32_t none) {
  Claim claim;
  LaneState* state = lane_state(params, device::block());
  claim.counter = device::exchange_word(&state->counter, kClaimed);
  claim.stopped = device::load_word(stop_word(params));
  if (params.lanes > 1) claim.entering = device::add_word(entering_word(params) + none, entry_of(params.tag));
  return claim;
}
// The call's counter, or kClaimed if the kernel may not store anything. The stop word is sticky: a sum that once went
// unfinished on this rank makes every later kernel stop before its first store, so no peer can take old data for
// new.
SHUNT_DEVICE uint32_t counter_of(const AllReduceParams& params, Claim claim) {
  const bool alone = entered_alone(claim.entering, params.tag);
  return claim.stopped == static_cast<uint32_t>(Stop::kNone) && alone ? claim.counter : kClaimed;
}
// After a call that was alone: its last lane makes room for the next one's.
SHUNT_DEVICE void leave(const AllReduceParams& params, Claim claim) {
  if (params.lanes > 1 && (claim.entering & 0xff) == params.lanes - 1u) {
    device::store_word(entering_word(params), 0);
  }
}

// The last warp, in a lane with an outbox: the writer wipes in call k what call k - 2 left, whatever its protocol
// and extent. All peers have read that, since call k - 1 had data of every peer; they poll that part again in
// call k + 2, and a kernel boundary lies between this and what lets them get that far.
SHUNT_COLD void wipe_outbox(const AllReduceParams& params, uint32_t counter, uint32_t thread) {
  const uint32_t before = part_of(counter + 2, kSharedParts);
  unsigned char* part = params.peers[0].write + before * params.part_bytes;
  const uint32_t left = device::load_word(&lane_state(params, device::block())->left[before]);
  unsigned char* sentinel = part + params.sentinel_offset + device::block() * params.sentinel_lane_bytes;
  for (uint32_t p = thread; p < left; p += kWipeThreads) {
    device::store(sentinel + p * kPacketBytes, Packet{{~0u, ~0u, ~0u, ~0u}}, Word::k8, true);
  }
  if (!zeroes_flags(counter, kSharedParts)) return;
  unsigned char* flagged = part + params.flagged_offset + device::block() * params.flagged_lane_bytes;
  for (uint32_t at = thread * kPacketBytes; at < params.flagged_lane_bytes; at += kWipeThreads * kPacketBytes) {
    device::store(flagged + at, Packet{}, Word::k8, true);
  }
}

// The header warp zeroes this lane's whole flagged region of one part, in every mailbox that this rank reads. After
// the block barrier only: all packets of the part have been read, and peers write it again no sooner than two
// calls on.
SHUNT_COLD void zero_flagged_region(const AllReduceParams& params, uint32_t counter, uint32_t h) {
  const uint32_t region = part_of(counter, params.parts) * params.part_bytes +
                          params.flagged_offset + device::block() * params.flagged_lane_bytes;
  for (uint32_t i = 0; i < params.ranks - 1u; ++i) {
    auto* mailbox = const_cast<unsigned char*>(params.peers[i].read);
    for (uint32_t at = h * kPacketBytes; at < params.flagged_lane_bytes;
         at += kHeaderThreads * kPacketBytes) {
      device::store(mailbox + region + at, Packet{}, Word::k8, false);
    }
  }
}

// Data threads, then the header warp, whose first thread claims the lane: before anything else in the block, since
// all wait for that. In lane 0 that thread exchanges headers too: one lane will do, since every call uses it and a
// kernel ends only when all its lanes have. (In host memory a header costs a lane more than its data.)
template <DataType kType, Protocol kProtocol, Variant kVariant, uint32_t kPeerBatch>
SHUNT_DEVICE void all_reduce(const ParamsOf<kVariant>& params) {
  const uint32_t data_threads = params.data_warps * 32u;
  const uint32_t thread = device::thread();
  Claim claimed;
  uint32_t after_data = thread - data_threads;
  device::settle(after_data);
  if (thread == data_threads) claimed = claim(params, after_data);
  Lane<kType, kProtocol, kVariant, kPeerBatch> lane(params, thread, data_threads);
  const uint32_t counter =
      device::broadcast(thread == data_threads ? counter_of(params, claimed) : kClaimed, data_threads);
  if (!SHUNT_LIKELY(counter != kClaimed)) {
    if (thread == data_threads && claimed.stopped == static_cast<uint32_t>(Stop::kNone)) {
      report_fault(params, Fault::kEnteredTwice, params.rank, 0);
    }
    return;
  }
  Stop reason = Stop::kNone;
  if (SHUNT_LIKELY(lane.active())) {
    reason = lane.run(counter);
  } else if (thread >= data_threads + kHeaderThreads) {
    wipe_outbox(params, counter, thread - data_threads - kHeaderThreads);
  }
  if (!SHUNT_LIKELY(reason == Stop::kNone)) remember_stop(params, reason);
  // The counter advances only when every thread of the lane has read everything of this call.
  const bool stopped = device::barrier_any(reason != Stop::kNone);
  if (thread < data_threads || stopped) return;
  if (!SHUNT_LIKELY(has_outbox(params) || !zeroes_flags(counter, params.parts))) {
    zero_flagged_region(params, counter, thread - data_threads);
  }
  // The thread that claimed the lane gives it back.
  if (thread != data_threads) return;
  leave(params, claimed);
  LaneState* state = lane_state(params, device::block());
  if (has_outbox(params)) device::store_word(&state->left[part_of(counter, kSharedParts)], lane.leaves());
  device::store_word(&state->counter, next_counter(counter));
}

}  // namespace shunt
