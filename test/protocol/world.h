// The ranks' hosts: they work off a plan of calls, compare every result with the reference, and may
// freeze a rank, abort or trap along the way.
#pragma once

#include <memory>

#include "test/protocol/buffers.h"
#include "test/protocol/options.h"

namespace sim {

// A kernel as captured: the parameters stay the same however often it is replayed.
struct Recorded {
  Calls calls;
  bool odd;                                   // its inputs hold NaN, all ones, ...
  std::vector<std::vector<Buffers>> buffers;  // of each rank and call
  std::vector<shunt::GroupedParams> params;
  shunt::LaunchPlan plan;
  std::vector<const shunt::host::HostKernel*> kernels;  // of each rank: how its buffers lie decides
};

// One execution of recorded calls by all ranks.
struct Step {
  uint32_t recorded;
  uint64_t data_seed;
  std::vector<std::vector<Bytes>> inputs;  // of each call and rank; made when the first rank needs them
  std::vector<Bytes> expected;             // of each call
  uint32_t users;                          // ranks that have not ended it
};

struct Action {
  // kJump: to the counter `value` or the next one, whichever keeps the part in turn, as if very
  // many calls with few packets had been made in between.
  enum class Kind { kStep, kJump } kind;
  uint32_t value;
};

// Which traps and stops a program brings about.
struct Disturbance {
  enum class Kind { kNone, kAbort, kMismatch, kOverlap } kind = Kind::kNone;
  uint32_t victim = 0;    // kAbort: the rank that freezes,
  uint32_t at_step = 0;   // in or after its launch number at_step,
  uint32_t delay = 0;     // so many turns later;
  uint32_t patience = 0;  // and so many turns later the others begin to abort
};

class World final : public Host {
 public:
  // Stream j of rank r is number r * streams_per_rank + j.
  World(const Options& options, uint32_t ranks, uint32_t streams_per_rank, uint64_t seed);

  // ---- for programs ----
  Rng& rng() { return rng_; }
  const Slabs& slabs() const { return slabs_; }
  uint32_t ranks() const { return slabs_.ranks(); }
  Call draw_call();
  Call draw_call(shunt::DataType type, uint64_t count);
  Calls draw_calls();  // one, or several to be one kernel
  uint32_t record(const Calls& calls);
  const Calls& calls_of(uint32_t step) const { return recorded_[steps_[step].recorded].calls; }
  uint32_t add_step(uint32_t recorded);
  std::vector<std::vector<Action>>& streams() { return streams_; }
  std::vector<uint32_t> first_counters;  // of each lane
  void set_timeouts(uint64_t ns) { timeout_ns_ = ns; }
  Disturbance disturbance;

  Outcome run();

 private:
  struct Timer {
    uint64_t turn;
    enum class What { kFreeze, kAbort, kSpinAll } what;
    uint32_t rank;
  };

  bool next(uint32_t stream, Launch& launch) override;
  void ended(uint32_t stream) override;
  void trapped(uint32_t rank) override;
  bool stuck() override;
  void tick(uint64_t turn) override {
    if (turn >= next_timer_) fire_timers(turn);
  }
  std::string describe(const void* address) override { return slabs_.describe(address); }

  void jump(uint32_t rank, uint32_t target);
  void make_data(Step& step);
  void begin_disturbance();
  void add_timer(Timer timer);
  void fire_timers(uint64_t turn);
  void fire(const Timer& timer);
  void order(uint32_t rank, shunt::HostOrder what);
  bool order_all(shunt::HostOrder what);
  bool stuck_in_abort();
  void check_reports();

  Options options_;
  Rng rng_;
  Slabs slabs_;
  std::vector<shunt::DataType> types_;
  std::vector<shunt::DataType> grouped_types_;  // those with a kernel for several messages
  uint64_t timeout_ns_ = 0;
  uint32_t streams_per_rank_;
  std::vector<std::vector<Action>> streams_;
  std::vector<Recorded> recorded_;
  std::vector<Step> steps_;
  std::unique_ptr<Machine> machine_;
  std::vector<size_t> position_;      // of each stream in its actions
  std::vector<bool> stopped_before_;  // of each stream's kernel: the rank had stopped at its launch
  std::vector<uint32_t> launches_;    // of each rank
  std::vector<shunt::HostOrder> ordered_;
  std::vector<Timer> timers_;
  uint64_t next_timer_ = ~uint64_t{0};
  bool frozen_ = false;
  bool spun_ = false;
  std::vector<uint32_t> long_waiters_;  // ranks that must have told their hosts
  uint32_t traps_ = 0;
  uint64_t ended_calls_ = 0;
};

}  // namespace sim
