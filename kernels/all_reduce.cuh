// The kernel: one shot, push. Each lane (block) stores its packets to every peer's mailbox, polls the same
// packets from every peer, adds in rank order and stores the result. No fence, no barrier between ranks.
// Why each step is as it is stands in DESIGN.md, "The kernel"; do not reorder without reading it.
#pragma once

#include "kernels/launch_plan.h"
#include "kernels/sum.cuh"
#include "kernels/wait.cuh"

namespace shunt {

// One lane's part of one call, seen by one data thread. kPeerBatch: peers polled at once.
template <DataType kType, Protocol kProtocol, Variant kVariant, uint32_t kPeerBatch>
class Lane {
 public:
  using C = Codec<kType, kProtocol>;

  // `thread` of `threads` data threads. Everything that does not depend on the call counter happens here,
  // while that is on its way: the addresses, and this thread's first packet.
  SHUNT_DEVICE Lane(const AllReduceParams& params, uint32_t thread, uint32_t threads)
      : params_(params),
        // Kernels of one peer are launched for two ranks only: no loop is left of this.
        peers_(kPeerBatch == 1 ? 1 : params.ranks - 1u),
        thread_(thread),
        threads_(threads),
        first_(device::block() * params.packets_per_lane) {
    const uint32_t packets = (params.bytes + C::kPayload - 1) / C::kPayload;
    const uint32_t left = packets > first_ ? packets - first_ : 0;
    packets_ = left < params.packets_per_lane ? left : params.packets_per_lane;
    data_ = params.data_offset + device::block() * params.lane_bytes + thread * kPacketBytes;
    if (thread < packets_) own_ = own_data(thread);
    from_ = mailbox_of(params, 0) + data_;
    to_ = C::User::place(params.recv, first_ + thread, params.bytes);
    sent_ = C::encode(own_, 0);
    device::settle(data_);
    device::settle(packets_);
    device::settle(from_);
    device::settle(to_.at);
    device::settle(to_.left);
  }

  // Returns why it stopped, kNone if it finished.
  SHUNT_DEVICE Stop run(uint32_t counter) {
    const uint32_t part = part_of(counter, params_.parts) * params_.part_bytes;
    data_ += part;
    from_ += part;
    const Packet sent = C::with_flag(sent_, counter);
    Wait wait(params_, counter);
    if constexpr (kVariant == Variant::kFast) {
      if (thread_ >= packets_) return Stop::kNone;
      send(thread_, sent);
      return receive(thread_, own_, wait) ? Stop::kNone : wait.reason();
    }
    // All packets of a thread are sent before it polls the first.
    Packet next = sent;
    for (uint32_t p = thread_; p < packets_;) {
      send(p, next);
      p += threads_;
      if (p >= packets_) break;
      Packet more = own_data(p);
      next = C::encode(more, counter);
    }
    Packet own = own_;
    for (uint32_t p = thread_; p < packets_;) {
      if (!receive(p, own, wait)) return wait.reason();
      p += threads_;
      if (p >= packets_) break;
      own = own_data(p);
      (void)C::encode(own, counter);
    }
    return Stop::kNone;
  }

 private:
  // Packet p of this rank's own data, as the user has it.
  SHUNT_DEVICE Packet own_data(uint32_t p) const {
    return C::User::load(C::User::place(params_.send, first_ + p, params_.bytes));
  }
  // Of packet p from this thread's first one.
  SHUNT_DEVICE uint32_t beyond(uint32_t p) const {
    return kVariant == Variant::kFast ? 0 : (p - thread_) * kPacketBytes;
  }

  // This thread's first packet from peer number `index`.
  SHUNT_DEVICE unsigned char* mailbox(uint32_t index) const {
    return kPeerBatch == 1 ? from_ : from_ + index * params_.mailbox_bytes;
  }

  // Peers in the order rank + 1, rank + 2, ...: one stream in and one out at each GPU at a time.
  SHUNT_DEVICE void send(uint32_t p, Packet sent) const {
    uint32_t peer = params_.rank == peers_ ? 0 : params_.rank;  // index of rank + 1
    for (uint32_t i = 0; i < peers_; ++i) {
      device::store<C::kWord>(params_.write[kPeerBatch == 1 ? 0 : peer] + data_ + beyond(p), sent,
                              true);
      peer = peer + 1 == peers_ ? 0 : peer + 1;
    }
  }

  SHUNT_DEVICE bool receive(uint32_t p, Packet own, Wait& wait) {
    Sum<C> sum;
    for (uint32_t base = 0; base < peers_; base += kPeerBatch) {
      Packet got[kPeerBatch];
      if (!poll(p, base, got, wait)) return false;
      add(sum, base, got, own);
      if constexpr (kPeerBatch == 1) break;
    }
    with_op<kVariant>(params_.op, [&](auto op) {
      auto to = to_;
      if (kVariant != Variant::kFast && p != thread_) to = C::User::place(params_.recv, first_ + p, params_.bytes);
      C::User::store(to, sum.template result<op()>(params_.ranks));
    });
    return true;
  }

  // Polls packet p of up to kPeerBatch peers at once, so that their latencies overlap. The reader wipes
  // what it has read: the peer writes here again two calls on, after this lane has finished this call.
  SHUNT_DEVICE bool poll(uint32_t p, uint32_t base, Packet (&got)[kPeerBatch], Wait& wait) {
    SHUNT_UNROLL
    for (uint32_t i = 0; i < kPeerBatch; ++i) {
      if (base + i < peers_) got[i] = device::load(mailbox(base + i) + beyond(p));
    }
    SHUNT_UNROLL
    for (uint32_t i = 0; i < kPeerBatch; ++i) {
      if (base + i >= peers_) break;
      unsigned char* from = mailbox(base + i) + beyond(p);
      while (!C::arrived(got[i], wait.counter())) {
        if (!wait.again(base + i)) return false;
        got[i] = device::load(from);
      }
      if constexpr (kProtocol == Protocol::kSentinel) {
        device::store<Word::k8>(from, C::wiped(), false);
      }
    }
    return true;
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

  const AllReduceParams& params_;
  const uint32_t peers_;
  const uint32_t thread_;
  const uint32_t threads_;
  const uint32_t first_;  // packet of the call
  uint32_t packets_;      // of this lane
  uint32_t data_;         // offset of this thread's first packet in every mailbox
  unsigned char* from_;   // where it comes from peer 0
  typename C::User::Place to_;  // and goes to the user
  Packet own_{};                // this rank's: as it is added,
  Packet sent_{};               // and as it is sent
};

SHUNT_COLD void report_fault(const AllReduceParams& params, Fault fault, uint32_t peer,
                             uint64_t theirs) {
  FaultReport* report = &params.board->fault;
  device::store<Word::k8>(&report->mine, packet_of(params.tag, theirs), false);
  device::store<Word::k8>(&report->peer, packet_of(join(peer, static_cast<uint32_t>(fault)), 0),
                          false);
  device::store_word(stop_word(params), static_cast<uint32_t>(Stop::kTrapped));
  device::trap();
}

// Takes the lane: its call counter, or 0 if there is nothing to do. One thread of the block calls this.
// Claimed before anything is stored: a second kernel in the lane (two graphs replayed at once, say) would
// use the same counter, and a peer would take its data for this call's.
SHUNT_DEVICE uint32_t claim(const AllReduceParams& params, LaneState* state) {
  const uint32_t counter = device::exchange_word(&state->counter, kClaimed);
  const uint32_t stopped = device::load_word(stop_word(params));
  // Sticky: a sum that once went unfinished on this rank makes every later kernel stop before its first
  // store, so no peer can take old data for new.
  if (stopped != static_cast<uint32_t>(Stop::kNone)) return 0;
  if (counter == kClaimed) report_fault(params, Fault::kEnteredTwice, params.rank, 0);
  return counter;
}

// The header warp: thread h exchanges headers with peer h and compares tags.
SHUNT_DEVICE Stop exchange_headers(const AllReduceParams& params, uint32_t counter, uint32_t h) {
  static_assert(kMaxPeers <= kHeaderThreads);
  using C = Codec<DataType::kUint64, Protocol::kFlagged>;
  if (h >= params.ranks - 1u) return Stop::kNone;
  const uint32_t offset =
      part_of(counter, params.parts) * params.part_bytes + device::block() * kPacketBytes;
  Packet tag = packet_of(params.tag, 0);
  device::store<Word::k8>(params.write[h] + offset, C::encode(tag, counter), true);
  Wait wait(params, counter);
  unsigned char* from = mailbox_of(params, h) + offset;
  Packet got = device::load(from);
  while (!C::arrived(got, counter)) {
    if (!wait.again(h)) return wait.reason();
    got = device::load(from);
  }
  const uint64_t theirs = join(C::decode(got).w[0], C::decode(got).w[1]);
  if (theirs != params.tag) {
    report_fault(params, Fault::kTagMismatch, peer_at(params.rank, h), theirs);
  }
  return Stop::kNone;
}

// Zeroes this lane's whole flagged region of one part, for every peer. After the block barrier only: all
// packets of the part have been read, and peers write it again no sooner than two calls on.
SHUNT_COLD void zero_flagged_region(const AllReduceParams& params, uint32_t counter) {
  const uint32_t region = part_of(counter, params.parts) * params.part_bytes +
                          params.flagged_offset + device::block() * params.flagged_lane_bytes;
  for (uint32_t i = 0; i < params.ranks - 1u; ++i) {
    for (uint32_t at = device::thread() * kPacketBytes; at < params.flagged_lane_bytes;
         at += device::block_dim() * kPacketBytes) {
      device::store<Word::k8>(mailbox_of(params, i) + region + at, Packet{}, false);
    }
  }
}

// The block's data threads, then one header warp, whose first thread claims the lane: before anything else
// it does, since all wait for that.
template <DataType kType, Protocol kProtocol, Variant kVariant, uint32_t kPeerBatch>
SHUNT_DEVICE void all_reduce(const AllReduceParams& params) {
  LaneState* state = lane_state(params, device::block());
  const uint32_t data_threads = device::block_dim() - kHeaderThreads;
  const uint32_t thread = device::thread();
  Stop reason = Stop::kNone;
  uint32_t counter = kClaimed;
  if (thread < data_threads) {
    Lane<kType, kProtocol, kVariant, kPeerBatch> lane(params, thread, data_threads);
    counter = device::broadcast(0, data_threads);
    if (counter == kClaimed) return;
    reason = lane.run(counter);
  } else {
    const uint32_t claimed = thread == data_threads ? claim(params, state) : 0;
    counter = device::broadcast(claimed, data_threads);
    if (counter == kClaimed) return;
    reason = exchange_headers(params, counter, thread - data_threads);
  }
  if (reason != Stop::kNone) device::store_word(stop_word(params), static_cast<uint32_t>(reason));
  // The counter advances only when every thread of the lane has read everything of this call.
  if (device::barrier_or(reason != Stop::kNone)) return;
  if (zeroes_flags(counter, params.parts)) zero_flagged_region(params, counter);
  if (thread == 0) device::store_word(&state->counter, next_counter(counter));
}

}  // namespace shunt
