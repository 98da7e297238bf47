// What the hosts of a World do besides launching: freeze, abort, trap, and look at what the boards
// say.
#include <algorithm>
#include <iterator>

#include "test/protocol/world.h"

namespace sim {

using shunt::Fault;
using shunt::HostOrder;
using Kind = Disturbance::Kind;

void World::order(uint32_t rank, HostOrder what) {
  if (ordered_[rank] >= what || machine_->dead(rank)) return;
  ordered_[rank] = what;
  slabs_.board(rank).order = static_cast<uint32_t>(what);
  machine_->spin(rank);  // waiting threads look at the order only now and then
}

// False: all ranks had it or worse already.
bool World::order_all(HostOrder what) {
  bool any = false;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    if (ordered_[rank] >= what || machine_->dead(rank)) continue;
    order(rank, what);
    any = true;
  }
  return any;
}

void World::add_timer(Timer timer) {
  timer.turn += machine_->turn();
  timers_.push_back(timer);
  next_timer_ = std::min(next_timer_, timer.turn);
}

void World::fire_timers(uint64_t turn) {
  std::vector<Timer> due;
  const auto is_due = [&](const Timer& timer) { return timer.turn <= turn; };
  std::copy_if(timers_.begin(), timers_.end(), std::back_inserter(due), is_due);
  timers_.erase(std::remove_if(timers_.begin(), timers_.end(), is_due), timers_.end());
  next_timer_ = ~uint64_t{0};
  for (const Timer& timer : timers_) next_timer_ = std::min(next_timer_, timer.turn);
  for (const Timer& timer : due) fire(timer);
}

void World::fire(const Timer& timer) {
  switch (timer.what) {
    case Timer::What::kFreeze:
      frozen_ = true;
      machine_->freeze(timer.rank, true);
      break;
    case Timer::What::kAbort:
      order(timer.rank, HostOrder::kAbort);
      break;
    case Timer::What::kSpinAll:
      spun_ = true;
      for (uint32_t rank = 0; rank < ranks(); ++rank) {
        if (rank != disturbance.victim && machine_->waits(rank)) long_waiters_.push_back(rank);
        machine_->spin(rank);
      }
      break;
  }
}

void World::begin_disturbance() {
  if (disturbance.kind != Kind::kAbort) return;
  add_timer({disturbance.delay, Timer::What::kFreeze, disturbance.victim});
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    if (rank == disturbance.victim && rng_.of256(200)) continue;
    // Some hosts abort at once, some only when nothing moves any more.
    if (rng_.of256(100)) continue;
    add_timer(
        {disturbance.delay + disturbance.patience + rng_.below(3000), Timer::What::kAbort, rank});
  }
}

bool World::stuck() {
  switch (disturbance.kind) {
    case Kind::kNone:
      return false;
    case Kind::kAbort:
      return stuck_in_abort();
    case Kind::kMismatch:
      return order_all(HostOrder::kTrap);
    case Kind::kOverlap:  // no hang is excused unless somebody has said why
      return traps_ != 0 && order_all(HostOrder::kTrap);
  }
  return false;
}

bool World::stuck_in_abort() {
  if (!timers_.empty()) {
    fire_timers(next_timer_);
    return true;
  }
  const uint32_t victim = disturbance.victim;
  // Let some wait until they tell their hosts.
  if (frozen_ && !spun_ && rng_.of256(timeout_ns_ != 0 ? 256 : 20)) {
    fire({0, Timer::What::kSpinAll, 0});
    if (timeout_ns_ != 0) return true;  // they stop by themselves
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      if (rank != victim) add_timer({2'000'000, Timer::What::kAbort, rank});
    }
    return true;
  }
  bool any = false;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    if (rank == victim || ordered_[rank] != HostOrder::kRun) continue;
    order(rank, HostOrder::kAbort);
    any = true;
  }
  if (any) return true;
  if (frozen_) {
    // The slow rank comes back, told or not.
    if (rng_.of256(128)) order(victim, HostOrder::kAbort);
    frozen_ = false;
    machine_->freeze(victim, false);
    if (spun_) add_timer({300'000, Timer::What::kAbort, victim});  // it would spin for ever
    return true;
  }
  if (ordered_[victim] != HostOrder::kRun) return false;
  order(victim, HostOrder::kAbort);
  return true;
}

void World::trapped(uint32_t rank) {
  ++traps_;
  const shunt::FaultReport& fault = slabs_.board(rank).fault;
  if (disturbance.kind == Kind::kMismatch || disturbance.kind == Kind::kOverlap) {
    const bool told = ordered_[rank] == HostOrder::kTrap;
    if (!told && fault.fault == Fault::kNone) {
      machine_->fail(Failure::kUnreported,
                     "rank " + std::to_string(rank) + " trapped without a report");
    }
    // With two kernels in one lane the words of their reports may mix.
    if (disturbance.kind == Kind::kMismatch && fault.fault == Fault::kTagMismatch &&
        (fault.mine == fault.theirs || fault.peer == rank)) {
      machine_->fail(Failure::kUnreported, "rank " + std::to_string(rank) + " reports nonsense");
    }
    return;
  }
  machine_->fail(Failure::kTrap, "rank " + std::to_string(rank) + " trapped, fault " +
                                     std::to_string(static_cast<uint32_t>(fault.fault)) +
                                     ", peer " + std::to_string(fault.peer) + "\n" +
                                     machine_->dump());
}

// At the end of a run.
void World::check_reports() {
  bool mismatch = false;
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const shunt::HostBoard& board = slabs_.board(rank);
    mismatch |= board.fault.fault == Fault::kTagMismatch;
    for (const shunt::WaitReport& wait : board.waits) {
      if (wait.peer_and_one == 0) continue;
      const uint32_t peer = wait.peer_and_one - 1;
      const bool known = std::any_of(recorded_.begin(), recorded_.end(), [&](const Recorded& recorded) {
        return recorded.params.front().tag == wait.tag;
      });
      if (peer == rank || peer >= ranks() || !known) {
        machine_->fail(Failure::kUnreported,
                       "rank " + std::to_string(rank) + " reports a false wait");
      }
    }
  }
  if (disturbance.kind == Kind::kMismatch && !mismatch) {
    machine_->fail(Failure::kUnreported, "mismatched calls, and no board says so");
  }
  for (uint32_t rank : long_waiters_) {
    const auto& waits = slabs_.board(rank).waits;
    if (std::all_of(std::begin(waits), std::end(waits),
                    [](const shunt::WaitReport& wait) { return wait.peer_and_one == 0; })) {
      machine_->fail(Failure::kUnreported, "a long wait of rank " + std::to_string(rank) +
                                               ", and its board does not say so");
    }
  }
}

}  // namespace sim
