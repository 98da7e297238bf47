// The kernel: one shot, push. Each lane (block) stores its packets to every peer's mailbox, polls the same
// packets from every peer, adds in rank order and stores the result. No fence, no barrier between ranks.
// Why each step is as it is stands in DESIGN.md, "The kernel"; do not reorder without reading it.
#pragma once

#include "kernels/launch_plan.h"
#include "kernels/numbers.cuh"

namespace shunt {

inline constexpr uint32_t kPollsPerCheck = 256;        // polls between looks at the host's order
inline constexpr uint64_t kReportAfterNs = 1'000'000;  // a wait this long is told to the host
inline constexpr uint32_t kBackOffNs = 500;

// One thread's view of one call.
class Wait {
 public:
  SHUNT_DEVICE Wait(const AllReduceParams& params, uint32_t counter)
      : params_(params), counter_(counter) {}

  // After an unsuccessful poll for data of `peer`. False: stop without storing anything.
  SHUNT_DEVICE bool again(uint32_t peer) {
    device::pause();
    return ++polls_ % kPollsPerCheck != 0 || check(peer);
  }
  SHUNT_DEVICE Stop reason() const { return reason_; }
  SHUNT_DEVICE uint32_t counter() const { return counter_; }

 private:
  SHUNT_DEVICE bool check(uint32_t peer) {
    const auto order = static_cast<HostOrder>(device::load_word(&params_.board->order));
    if (order == HostOrder::kTrap) {
      device::store_word(params_.stop, static_cast<uint32_t>(Stop::kTrapped));
      device::trap();
    }
    if (order == HostOrder::kAbort) return stop(Stop::kAborted);
    const uint64_t now = device::clock_ns();
    if (start_ == 0) start_ = reported_ = now;
    if (params_.timeout_ns != 0 && now - start_ > params_.timeout_ns) {
      report(peer);
      return stop(Stop::kTimedOut);
    }
    if (now - reported_ > kReportAfterNs) {
      reported_ = now;
      report(peer);
    }
    if (now - start_ > kReportAfterNs) device::sleep_ns(kBackOffNs);
    return true;
  }
  SHUNT_DEVICE void report(uint32_t peer) const {
    device::store<Word::k8>(&params_.board->waits[device::block()],
                            {params_.tag, uint64_t{counter_} | uint64_t{peer + 1} << 32}, false);
  }
  SHUNT_DEVICE bool stop(Stop reason) {
    reason_ = reason;
    return false;
  }

  const AllReduceParams& params_;
  uint32_t counter_;
  uint32_t polls_ = 0;
  uint64_t start_ = 0;
  uint64_t reported_ = 0;
  Stop reason_ = Stop::kNone;
};

// Sentinel: 16 bytes of data; a word of all ones is "not here yet".
// Flagged: {data, flag, data, flag}, 8 bytes of data.
template <DataType kType, Protocol kProtocol>
struct Codec {
  using T = typename ElementOf<kType>::type;
  static constexpr uint32_t kElements = (kProtocol == Protocol::kSentinel ? 16 : 8) / sizeof(T);
  static constexpr Word kWord =
      kProtocol == Protocol::kFlagged || sizeof(T) == 8 ? Word::k8 : Word::k4;
  using Elements = T[kElements];

  // What a writer sends for its data. Words that read as "not here yet" lose their top bit: a NaN before
  // and after, in every float type. `data` is changed alike, so that all ranks add the same bits.
  SHUNT_DEVICE static Packet encode(Packet& data, uint32_t flag) {
    if constexpr (kProtocol == Protocol::kFlagged) {
      const uint64_t f = uint64_t{flag} << 32;
      return {(data.low & 0xffffffffu) | f, data.low >> 32 | f};
    } else if constexpr (kWord == Word::k8) {
      data = {spared8(data.low), spared8(data.high)};
      return data;
    } else {
      data = {spared4(data.low), spared4(data.high)};
      return data;
    }
  }
  SHUNT_DEVICE static Packet decode(Packet p) {
    if constexpr (kProtocol == Protocol::kFlagged) {
      return {(p.low & 0xffffffffu) | p.high << 32, 0};
    } else {
      return p;
    }
  }
  // Words arrive in any order: all of them must be here.
  SHUNT_DEVICE static bool arrived(Packet p, uint32_t flag) {
    if constexpr (kProtocol == Protocol::kFlagged) {
      return static_cast<uint32_t>(p.low >> 32) == flag &&
             static_cast<uint32_t>(p.high >> 32) == flag;
    } else if constexpr (kWord == Word::k8) {
      return p.low != ~uint64_t{0} && p.high != ~uint64_t{0};
    } else {
      return here4(p.low) && here4(p.high);
    }
  }

 private:
  SHUNT_DEVICE static uint64_t spared8(uint64_t w) { return w == ~uint64_t{0} ? w >> 1 : w; }
  SHUNT_DEVICE static uint64_t spared4(uint64_t w) {
    uint32_t low = static_cast<uint32_t>(w), high = static_cast<uint32_t>(w >> 32);
    low = low == 0xffffffffu ? 0x7fffffffu : low;
    high = high == 0xffffffffu ? 0x7fffffffu : high;
    return low | uint64_t{high} << 32;
  }
  SHUNT_DEVICE static bool here4(uint64_t w) {
    return static_cast<uint32_t>(w) != 0xffffffffu && static_cast<uint32_t>(w >> 32) != 0xffffffffu;
  }
};

// The user's buffers, as packets. Any element alignment: an unaligned or last packet goes element-wise.
template <typename C>
struct UserBuffer {
  using T = typename C::T;
  static constexpr uint32_t kBytes = C::kElements * sizeof(T);

  SHUNT_DEVICE static bool whole(const void* base, uint64_t first, uint64_t count) {
    return reinterpret_cast<uintptr_t>(base) % kBytes == 0 && first + C::kElements <= count;
  }
  SHUNT_DEVICE static Packet load(const void* base, uint64_t packet, uint64_t count) {
    const T* from = static_cast<const T*>(base) + packet * C::kElements;
    Packet p{0, 0};  // padding is never all ones
    if (whole(base, packet * C::kElements, count)) {
      if constexpr (kBytes == 16) {
#ifdef __CUDACC__
        const ulonglong2 v = *reinterpret_cast<const ulonglong2*>(from);
        p = {v.x, v.y};
#else
        memcpy(&p, from, 16);
#endif
      } else {
        p.low = *reinterpret_cast<const uint64_t*>(from);
      }
    } else {
      T elements[C::kElements] = {};
SHUNT_UNROLL
      for (uint32_t e = 0; e < C::kElements; ++e) {
        if (packet * C::kElements + e < count) elements[e] = from[e];
      }
      memcpy(&p, elements, kBytes);
    }
    return p;
  }
  SHUNT_DEVICE static void store(void* base, uint64_t packet, uint64_t count, Packet p) {
    T* to = static_cast<T*>(base) + packet * C::kElements;
    if (whole(base, packet * C::kElements, count)) {
      if constexpr (kBytes == 16) {
#ifdef __CUDACC__
        *reinterpret_cast<ulonglong2*>(to) = make_ulonglong2(p.low, p.high);
#else
        memcpy(to, &p, 16);
#endif
      } else {
        *reinterpret_cast<uint64_t*>(to) = p.low;
      }
    } else {
      T elements[C::kElements];
      memcpy(static_cast<void*>(elements), &p, kBytes);
SHUNT_UNROLL
      for (uint32_t e = 0; e < C::kElements; ++e) {
        if (packet * C::kElements + e < count) to[e] = elements[e];
      }
    }
  }
};

// Calls f with the operation as a compile-time constant: one branch a packet, not one an element.
template <typename F>
SHUNT_DEVICE void with_op(ReduceOp op, F&& f) {
  switch (op) {
    case ReduceOp::kSum: return f(std::integral_constant<ReduceOp, ReduceOp::kSum>{});
    case ReduceOp::kProd: return f(std::integral_constant<ReduceOp, ReduceOp::kProd>{});
    case ReduceOp::kMax: return f(std::integral_constant<ReduceOp, ReduceOp::kMax>{});
    case ReduceOp::kMin: return f(std::integral_constant<ReduceOp, ReduceOp::kMin>{});
    case ReduceOp::kAvg: return f(std::integral_constant<ReduceOp, ReduceOp::kAvg>{});
  }
}

template <typename C>
struct Sum {
  using T = typename C::T;
  Acc<T> acc[C::kElements];

  SHUNT_DEVICE void start(Packet p) {
    T elements[C::kElements];
    memcpy(static_cast<void*>(elements), &p, sizeof(elements));
SHUNT_UNROLL
    for (uint32_t e = 0; e < C::kElements; ++e) acc[e] = widen(elements[e]);
  }
  template <ReduceOp kOp>
  SHUNT_DEVICE void add(Packet p) {
    T elements[C::kElements];
    memcpy(static_cast<void*>(elements), &p, sizeof(elements));
SHUNT_UNROLL
    for (uint32_t e = 0; e < C::kElements; ++e) {
      acc[e] = combine<kOp>(acc[e], widen(elements[e]));
    }
  }
  template <ReduceOp kOp>
  SHUNT_DEVICE Packet result(uint32_t ranks) const {
    T elements[C::kElements];
SHUNT_UNROLL
    for (uint32_t e = 0; e < C::kElements; ++e) elements[e] = narrow<T>(finish<kOp>(acc[e], ranks));
    Packet p{0, 0};
    memcpy(&p, elements, sizeof(elements));
    return p;
  }
};

// One lane's part of one call, seen by one data thread.
template <DataType kType, Protocol kProtocol, uint32_t kPeerBatch>
class Lane {
 public:
  using C = Codec<kType, kProtocol>;

  SHUNT_DEVICE explicit Lane(const AllReduceParams& params)
      : params_(params), peers_(params.ranks - 1) {
    first_ = device::block() * params.packets_per_lane;
    const uint64_t packets = (params.count + C::kElements - 1) / C::kElements;
    const uint64_t left = packets > first_ ? packets - first_ : 0;
    packets_ = static_cast<uint32_t>(left < params.packets_per_lane ? left : params.packets_per_lane);
  }

  // Packet p of this rank's own data, as the user has it.
  SHUNT_DEVICE Packet own_data(uint32_t p) const {
    return p < packets_ ? UserBuffer<C>::load(params_.send, first_ + p, params_.count) : Packet{0, 0};
  }

  // `thread` of `threads` data threads; `first` is own_data(thread), loaded ahead because its latency
  // overlaps that of the counter. Returns why it stopped, kNone if it finished.
  SHUNT_DEVICE Stop run(Packet first, uint32_t counter, uint32_t thread, uint32_t threads) {
    const uint32_t lane = device::block();
    data_ = part_of(counter, params_.parts) * params_.part_bytes + params_.data_offset +
            lane * params_.lane_capacity * kPacketBytes;
    const Packet first_sent = C::encode(first, counter);
    for (uint32_t p = thread; p < packets_; p += threads) {
      Packet sent = first_sent;
      if (p != thread) {
        Packet own = own_data(p);
        sent = C::encode(own, counter);
      }
      uint32_t peer = params_.rank == peers_ ? 0 : params_.rank;  // index of rank + 1
      for (uint32_t i = 0; i < peers_; ++i) {
        device::store<C::kWord>(params_.peers[peer].write + offset(p), sent, true);
        peer = peer + 1 == peers_ ? 0 : peer + 1;
      }
    }
    Wait wait(params_, counter);
    for (uint32_t p = thread; p < packets_; p += threads) {
      Packet own = first;
      if (p != thread) {
        own = own_data(p);
        (void)C::encode(own, counter);
      }
      if (!reduce(p, own, wait)) return wait.reason();
    }
    return Stop::kNone;
  }

 private:
  SHUNT_DEVICE uint32_t offset(uint32_t p) const { return data_ + p * kPacketBytes; }

  SHUNT_DEVICE bool reduce(uint32_t p, Packet own, Wait& wait) {
    Sum<C> sum;
    if (params_.rank == 0) sum.start(own);
    for (uint32_t base = 0; base < peers_; base += kPeerBatch) {
      Packet got[kPeerBatch];
      if (!receive(p, base, got, wait)) return false;
      with_op(params_.op, [&](auto op) {
SHUNT_UNROLL
        for (uint32_t i = 0; i < kPeerBatch; ++i) {
          const uint32_t index = base + i;
          if (index >= peers_) break;
          if (index == params_.rank && index != 0) sum.template add<op()>(own);
          if (index == 0 && params_.rank != 0) {
            sum.start(C::decode(got[i]));
          } else {
            sum.template add<op()>(C::decode(got[i]));
          }
        }
      });
    }
    with_op(params_.op, [&](auto op) {
      if (params_.rank == peers_) sum.template add<op()>(own);
      UserBuffer<C>::store(params_.recv, first_ + p, params_.count,
                           sum.template result<op()>(params_.ranks));
    });
    return true;
  }

  // Polls packet p of up to kPeerBatch peers at once, so that their latencies overlap. The reader wipes
  // what it has read: the peer writes here again two calls on, after this lane has finished this call.
  SHUNT_DEVICE bool receive(uint32_t p, uint32_t base, Packet (&got)[kPeerBatch], Wait& wait) {
SHUNT_UNROLL
    for (uint32_t i = 0; i < kPeerBatch; ++i) {
      if (base + i < peers_) got[i] = device::load(params_.peers[base + i].poll + offset(p));
    }
SHUNT_UNROLL
    for (uint32_t i = 0; i < kPeerBatch; ++i) {
      if (base + i >= peers_) break;
      const unsigned char* from = params_.peers[base + i].poll + offset(p);
      while (!C::arrived(got[i], wait.counter())) {
        if (!wait.again(peer_at(params_.rank, base + i))) return false;
        got[i] = device::load(from);
      }
      if constexpr (kProtocol == Protocol::kSentinel) {
        device::store<Word::k8>(const_cast<unsigned char*>(from), {~uint64_t{0}, ~uint64_t{0}}, false);
      }
    }
    return true;
  }

  const AllReduceParams& params_;
  uint32_t peers_;
  uint32_t data_ = 0;  // of this lane's packets in every mailbox
  uint32_t first_;     // packet of the call
  uint32_t packets_;
};

SHUNT_DEVICE void report_fault(const AllReduceParams& params, Fault fault, uint32_t peer,
                               uint64_t theirs) {
  FaultReport* report = &params.board->fault;
  device::store<Word::k8>(&report->mine, {params.tag, theirs}, false);
  device::store<Word::k8>(
      &report->peer, {uint64_t{peer} | uint64_t{static_cast<uint32_t>(fault)} << 32, 0}, false);
  device::store_word(params.stop, static_cast<uint32_t>(Stop::kTrapped));
  device::trap();
}

// The header warp: thread h exchanges headers with peers h, h + 32, ... and compares tags. Thread 0 also
// looks whether another kernel is in this lane: it would use the same counter (two graphs replayed at
// once, say). Only after the header has been stored: an atomic's latency must not delay the peers.
SHUNT_DEVICE Stop exchange_headers(const AllReduceParams& params, LaneState* state, uint32_t counter,
                                   uint32_t h) {
  using C = Codec<DataType::kUint64, Protocol::kFlagged>;
  const uint32_t offset =
      part_of(counter, params.parts) * params.part_bytes + device::block() * kPacketBytes;
  Packet tag{params.tag, 0};
  const Packet header = C::encode(tag, counter);
  for (uint32_t i = h; i < params.ranks - 1; i += kHeaderThreads) {
    device::store<Word::k8>(params.peers[i].write + offset, header, true);
  }
  const uint32_t busy = h == 0 ? device::exchange_word(&state->busy, 1) : 0;
  Wait wait(params, counter);
  for (uint32_t i = h; i < params.ranks - 1; i += kHeaderThreads) {
    const uint32_t peer = peer_at(params.rank, i);
    Packet got = device::load(params.peers[i].poll + offset);
    while (!C::arrived(got, counter)) {
      if (busy != 0 || !wait.again(peer)) break;
      got = device::load(params.peers[i].poll + offset);
    }
    if (busy != 0) report_fault(params, Fault::kEnteredTwice, params.rank, 0);
    if (!C::arrived(got, counter)) return wait.reason();
    const uint64_t theirs = C::decode(got).low;
    if (theirs != params.tag) report_fault(params, Fault::kTagMismatch, peer, theirs);
  }
  return Stop::kNone;
}

// Zeroes this lane's whole flagged region of one part, for every peer. After the block barrier only: all
// packets of the part have been read, and peers write it again no sooner than two calls on.
SHUNT_DEVICE void zero_flagged_region(const AllReduceParams& params, uint32_t counter) {
  const uint32_t region = part_of(counter, params.parts) * params.part_bytes +
                          params.flagged_offset +
                          device::block() * params.flagged_capacity * kPacketBytes;
  for (uint32_t i = 0; i < params.ranks - 1; ++i) {
    for (uint32_t p = device::thread(); p < params.flagged_capacity; p += device::block_dim()) {
      device::store<Word::k8>(params.peers[i].poll + region + p * kPacketBytes, {0, 0}, false);
    }
  }
}

template <DataType kType, Protocol kProtocol, uint32_t kPeerBatch>
SHUNT_DEVICE void all_reduce(const AllReduceParams& params) {
  LaneState* state = params.lanes + device::block();
  const uint32_t data_threads = device::block_dim() - kHeaderThreads;
  const uint32_t thread = device::thread();
  // Three loads in flight at once: user data, counter, stop word.
  Lane<kType, kProtocol, kPeerBatch> lane(params);
  Packet first{0, 0};
  if (thread < data_threads) first = lane.own_data(thread);
  const uint32_t counter = device::load_word(&state->counter);
  const uint32_t stopped = device::load_word(params.stop);

  // Sticky: a sum that once went unfinished on this rank makes every later kernel stop before its first
  // store, so no peer can take old data for new.
  Stop reason = static_cast<Stop>(stopped);
  if (reason == Stop::kNone) {
    reason = thread < data_threads
                 ? lane.run(first, counter, thread, data_threads)
                 : exchange_headers(params, state, counter, thread - data_threads);
    if (reason != Stop::kNone) device::store_word(params.stop, static_cast<uint32_t>(reason));
  }
  // The counter advances only when every thread of the lane has read everything of this call.
  if (device::barrier_or(reason != Stop::kNone)) return;
  if (zeroes_flags(counter, params.parts)) zero_flagged_region(params, counter);
  if (thread == 0) {
    device::store_word(&state->counter, next_counter(counter));
    device::store_word(&state->busy, 0);
  }
}

}  // namespace shunt
