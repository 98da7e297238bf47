// Watches the kernels of all shunting communicators from the host: who waits for whom, for how long, and
// what went wrong. One background thread, started when the first communicator shunts; it reads pinned
// memory and process descriptors and makes no CUDA call. When the program exits, boards are looked at once
// more and then never again: the driver unmaps them.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "kernels/protocol.h"
#include "shim/engine/call_ring.h"
#include "shim/engine/peers.h"

namespace shunt {

using Clock = std::chrono::steady_clock;

class Watch {
 public:
  // `name`: what lines call the communicator. `timeout_seconds`: SHUNT_TIMEOUT.
  Watch(std::string name, HostBoard* board, uint32_t rank, std::unique_ptr<PeerProcesses> peers,
        std::optional<double> timeout_seconds);

  // Looks at the board once; logs what is new. Thread-safe.
  void look(Clock::time_point now);
  // Something ended this communicator's operations: later calls return ncclRemoteError.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void order(HostOrder order);
  // A peer has died (seen within a tenth of a second); bit r: rank r.
  uint32_t dead_peers() const { return dead_.load(std::memory_order_relaxed); }
  // Whether NCCL runs the last operation, as far as is known without asking the device.
  void set_in_nccl(bool is) { in_nccl_.store(is, std::memory_order_relaxed); }
  // NCCL's kernels wait for a dead peer: said, and failed from now on. They cannot be stopped from here.
  void stuck_in_nccl();
  // The last calls, where they are kept: logged with a report of a long wait, and by dump. Before it is looked at.
  void keep_calls(std::shared_ptr<const CallRing> calls) { calls_ = std::move(calls); }
  void dump() const;
  const std::string& name() const { return name_; }

 private:
  struct Lane {
    WaitReport report{};
    Clock::time_point since{};
    Clock::time_point seen{};
    uint32_t missing = 0;  // bit r: waits for rank r
  };
  void give_order(HostOrder order);
  void look_at_faults();
  void look_for_dead(Clock::time_point now);
  void look_at_dead(uint32_t reported, uint32_t missing, Clock::time_point now);
  void report(const Lane& longest, uint32_t missing, uint32_t lanes, double seconds, bool trap);

  const std::string name_;
  HostBoard* const board_;
  const uint32_t rank_;
  const std::unique_ptr<PeerProcesses> peers_;
  const std::optional<double> timeout_seconds_;
  std::shared_ptr<const CallRing> calls_;
  std::atomic<bool> failed_{false};
  std::atomic_flag looking_ = ATOMIC_FLAG_INIT;
  Lane lanes_[kMaxLanes];
  Clock::time_point last_look_{};
  bool fault_reported_ = false;
  uint64_t reported_tag_ = 0;
  uint32_t reported_counter_ = 0;
  std::atomic<uint32_t> dead_{0};
  std::atomic<bool> in_nccl_{false};
  Clock::time_point looked_for_dead_{}, died_{};
  bool death_said_ = false;
  uint32_t seen_dead_ = 0;  // bit r: rank r was dead when a report said that it is waited for
  std::optional<Clock::time_point> trap_at_;  // a peer died: trap then
};

// The list that the background thread goes through.
class Watchdog {
 public:
  static Watchdog& get();
  void add(std::shared_ptr<Watch> watch);  // starts the thread if there is none
  void remove(const Watch* watch);
  void look_at_all();
  // From now on this signal has the last calls of all communicators logged, by the background thread. Once in a
  // process; refused, with a line, where the program handles the signal itself.
  void dump_on(int signal);

 private:
  struct State;
  void start();
  Watchdog();
  State& state_;
};

// "17 (4096 bytes, bfloat16 sum)"
std::string describe_call(uint64_t tag);

}  // namespace shunt
