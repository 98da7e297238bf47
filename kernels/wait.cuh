// How long a thread waits for a packet, and what ends its wait otherwise than by data.
#pragma once

#include "kernels/device_access.cuh"

namespace shunt {

inline constexpr uint32_t kPollsPerCheck = 256;        // polls between looks at the host's order
inline constexpr uint64_t kReportAfterNs = 1'000'000;  // a wait this long is told to the host
inline constexpr uint32_t kBackOffNs = 500;

// Looks at the host's order and at the clock. Out of line: it is rare, and a copy of it at each poll would
// push the fast path out of the instruction cache. `index`: of the peer; `start`: ns, of the wait.
SHUNT_COLD Stop look_up(const AllReduceParams& params, uint32_t counter, uint32_t index,
                        uint64_t start) {
  const auto order = static_cast<HostOrder>(device::load_word(&params.board->order));
  if (order == HostOrder::kTrap) {
    device::store_word(stop_word(params), static_cast<uint32_t>(Stop::kTrapped));
    device::trap();
  }
  if (order == HostOrder::kAbort) return Stop::kAborted;
  const uint64_t waited = device::clock_ns() - start;
  const bool late = params.timeout_ns != 0 && waited > params.timeout_ns;
  if (late || waited > kReportAfterNs) {
    device::store<Word::k8>(&params.board->waits[device::block()],
                            packet_of(params.tag, join(counter, peer_at(params.rank, index) + 1)),
                            false);
    device::sleep_ns(kBackOffNs);
  }
  return late ? Stop::kTimedOut : Stop::kNone;
}

// One thread's waits in one call.
class Wait {
 public:
  SHUNT_DEVICE Wait(const AllReduceParams& params, uint32_t counter)
      : params_(params), counter_(counter) {}

  // Polls `from`, where peer number `index` puts a packet of codec C, until all of it is there; `got`: what the
  // first poll saw, and the packet in the end. False: stop without storing anything.
  template <typename C>
  SHUNT_DEVICE bool until(const unsigned char* from, uint32_t index, Packet& got) {
    if (C::arrived(got, counter_)) return true;
    for (;;) {
      SHUNT_ONE_BY_ONE
      for (uint32_t poll = 0; poll < kPollsPerCheck; ++poll) {
        device::pause();
        got = device::load(from);
        if (C::arrived(got, counter_)) return true;
      }
      if (start_ == 0) start_ = device::clock_ns();
      reason_ = look_up(params_, counter_, index, start_);
      if (reason_ != Stop::kNone) return false;
    }
  }
  SHUNT_DEVICE Stop reason() const { return reason_; }
  SHUNT_DEVICE uint32_t counter() const { return counter_; }

 private:
  const AllReduceParams& params_;
  const uint32_t counter_;
  uint64_t start_ = 0;  // ns; 0: not looked at yet
  Stop reason_ = Stop::kNone;
};

}  // namespace shunt
