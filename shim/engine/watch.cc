#include "shim/engine/watch.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "shim/engine/log.h"
#include "shim/engine/settings.h"

namespace shunt {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kPeriod = milliseconds(50);

// Shared by whoever touches boards, taken alone when the driver is about to unmap them.
std::shared_mutex boards_mutex;
bool boards_gone = false;

// A kernel repeats its report about once a millisecond. One that has not for this long may have ended its
// wait; or its GPU is shared, and the same wait is reported again later.
constexpr auto kForget = seconds(2);
// Frameworks get this long to notice ncclRemoteError and abort by themselves.
constexpr auto kGrace = seconds(10);
constexpr auto kDeadPeriod = milliseconds(100);
// A program that asks NCCL for errors is told by an error line before this.
constexpr auto kSayDeath = milliseconds(850);

std::string ranks_text(uint32_t mask) {
  std::string out;
  for (uint32_t r = 0; r < 32; ++r) {
    if ((mask >> r & 1) == 0) continue;
    if (!out.empty()) out += ", ";
    out += std::to_string(r);
  }
  return (out.find(',') == std::string::npos ? "rank " : "ranks ") + out;
}

}  // namespace

std::string describe_call(uint64_t word) {
  const CallTag tag = unpack_tag(word);
  if (tag.messages > 1) {
    return format("%u to %u (in one group, %s %s)", tag.number, tag.number + tag.messages - 1, name_of(tag.type),
                  name_of(tag.op));
  }
  return format("%u (%u bytes, %s %s)", tag.number, tag.bytes, name_of(tag.type), name_of(tag.op));
}

Watch::Watch(std::string name, HostBoard* board, uint32_t rank, std::unique_ptr<PeerProcesses> peers,
             std::optional<double> timeout_seconds)
    : name_(std::move(name)),
      board_(board),
      rank_(rank),
      peers_(std::move(peers)),
      timeout_seconds_(timeout_seconds) {}

void Watch::order(HostOrder order) {
  std::shared_lock lock(boards_mutex);
  if (!boards_gone) give_order(order);
}

void Watch::give_order(HostOrder order) {
  __atomic_store_n(&board_->order, static_cast<uint32_t>(order), __ATOMIC_RELEASE);
}

void Watch::look(Clock::time_point now) {
  std::shared_lock lock(boards_mutex);
  if (boards_gone) return;
  if (looking_.test_and_set(std::memory_order_acquire)) return;  // another thread is at it
  look_at_faults();
  look_for_dead(now);
  // While this process was stopped its GPU went on: that time was nobody's fault. The rest still counts.
  if (const auto stopped = now - last_look_; stopped > kForget) {
    for (Lane& lane : lanes_) {
      lane.since += stopped;
      lane.seen += stopped;
    }
  }
  last_look_ = now;
  uint32_t missing = 0, waiting = 0;
  uint32_t reported = 0;  // ranks that are waited for in reports that came since the last look
  const Lane* longest = nullptr;
  for (uint32_t i = 0; i < kMaxLanes; ++i) {
    WaitReport& slot = board_->waits[i];
    Lane& lane = lanes_[i];
    const uint32_t peer_and_one = __atomic_exchange_n(&slot.peer_and_one, 0u, __ATOMIC_ACQUIRE);
    if (peer_and_one != 0 && peer_and_one <= kMaxRanks) {
      const uint64_t tag = __atomic_load_n(&slot.tag, __ATOMIC_RELAXED);
      const uint32_t counter = __atomic_load_n(&slot.counter, __ATOMIC_RELAXED);
      // However long ago: the counter makes it the same call of the same lane, still unfinished.
      const bool same = tag == lane.report.tag && counter == lane.report.counter;
      if (!same) lane = {{tag, counter, peer_and_one}, now, now, 0};
      lane.seen = now;
      lane.missing |= 1u << (peer_and_one - 1);
      reported |= 1u << (peer_and_one - 1);
    } else if (now - lane.seen > kForget) {
      lane.missing = 0;
    }
    if (lane.missing == 0) continue;
    ++waiting;
    missing |= lane.missing;
    if (longest == nullptr || lane.seen - lane.since > longest->seen - longest->since) longest = &lane;
  }
  if (longest != nullptr) {
    // Up to the last report only: the wait may have ended right after it.
    const double waited = std::chrono::duration<double>(longest->seen - longest->since).count();
    const double limit = timeout_seconds_.value_or(kReportSeconds);
    const bool known = reported_tag_ == longest->report.tag &&
                       reported_counter_ == longest->report.counter;
    if (waited > limit && !known) {
      reported_tag_ = longest->report.tag;
      reported_counter_ = longest->report.counter;
      report(*longest, missing, waiting, waited, timeout_seconds_.has_value());
    }
    look_at_dead(reported, missing, now);
  }
  looking_.clear(std::memory_order_release);
}

void Watch::report(const Lane& longest, uint32_t missing, uint32_t lanes, double waited, bool trap) {
  log_error("communicator %s: rank %u waits for %s in call %s for %.0f s (%u lane%s)%s", name_.c_str(),
            rank_, ranks_text(missing).c_str(), describe_call(longest.report.tag).c_str(), waited, lanes,
            lanes == 1 ? "" : "s", trap ? "; stopping this process's GPU work (SHUNT_TIMEOUT)" : "");
  dump();
  if (!trap) return;
  failed_.store(true, std::memory_order_relaxed);
  give_order(HostOrder::kTrap);
}

// An error whatever the cause: seldom, and asked for or beside one.
void Watch::dump() const {
  if (calls_ == nullptr) return;
  log_error("communicator %s: rank %u: %s", name_.c_str(), rank_, calls_->text().c_str());
}

void Watch::look_at_faults() {
  const auto fault = static_cast<Fault>(
      __atomic_load_n(reinterpret_cast<uint32_t*>(&board_->fault.fault), __ATOMIC_ACQUIRE));
  if (fault == Fault::kNone || fault_reported_) return;
  fault_reported_ = true;
  failed_.store(true, std::memory_order_relaxed);
  const std::string mine = describe_call(board_->fault.mine);
  if (fault == Fault::kTagMismatch) {
    log_error(
        "communicator %s: rank %u is in call %s but rank %u in call %s: mismatched calls, or graphs "
        "replayed in different order; stopping this process's GPU work",
        name_.c_str(), rank_, mine.c_str(), board_->fault.peer,
        describe_call(board_->fault.theirs).c_str());
  } else {
    log_error(
        "communicator %s: rank %u entered call %s while another call of this communicator was running "
        "(two graphs replayed at once?); stopping this process's GPU work",
        name_.c_str(), rank_, mine.c_str());
  }
  dump();
}

void Watch::look_for_dead(Clock::time_point now) {
  if (now - looked_for_dead_ < kDeadPeriod) return;
  looked_for_dead_ = now;
  const uint32_t dead = peers_->dead_ranks();
  if (dead == 0) return;
  if (dead_peers() == 0) died_ = now;
  dead_.store(dead, std::memory_order_relaxed);
  // No more than a word: that peer may have come to the end of all its work, and so may this rank.
  if (death_said_ || failed() || !in_nccl_.load(std::memory_order_relaxed) || now - died_ < kSayDeath) return;
  death_said_ = true;
  log_info("communicator %s: rank %u: %s has ended; an operation that NCCL runs may wait for it "
           "(ncclCommGetAsyncError tells)", name_.c_str(), rank_, peers_->text(dead).c_str());
}

void Watch::stuck_in_nccl() {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  log_error("communicator %s: rank %u waits in an operation that NCCL runs for %s, which has ended; calls return "
            "ncclRemoteError", name_.c_str(), rank_, peers_->text(dead_peers()).c_str());
  dump();
}

// Only a peer that a kernel waits for counts: one that has finished its work may well be gone, before the
// report of a wait that its last data ended is looked at. So there must be a report that is newer than a
// look that saw it dead.
void Watch::look_at_dead(uint32_t reported, uint32_t missing, Clock::time_point now) {
  if (trap_at_.has_value()) {
    if (now >= *trap_at_) give_order(HostOrder::kTrap);
    return;
  }
  const uint32_t dead = peers_->dead_ranks();
  const bool sure = (reported & dead & seen_dead_) != 0;
  seen_dead_ |= reported & dead;
  if (!sure) return;
  // All that this call still waits for: one may have died of another one's death.
  for (uint32_t r = 0; r < kMaxRanks; ++r) {
    if (((missing | reported) & dead) >> r & 1) {
      log_error("communicator %s: rank %u waits for rank %u, whose process %lld has ended; calls return "
                "ncclRemoteError and the waiting kernel stops in %lld s",
                name_.c_str(), rank_, r, static_cast<long long>(peers_->pid(r)),
                static_cast<long long>(kGrace.count()));
    }
  }
  failed_.store(true, std::memory_order_relaxed);
  trap_at_ = now + kGrace;
}

struct Watchdog::State {
  std::mutex mutex;
  std::vector<std::shared_ptr<Watch>> watches;
  bool running = false;
};

Watchdog::Watchdog() : state_(*new State) {}

Watchdog& Watchdog::get() {
  static auto& watchdog = *new Watchdog;  // never destroyed: its thread may outlive main
  return watchdog;
}

void Watchdog::add(std::shared_ptr<Watch> watch) {
  std::lock_guard lock(state_.mutex);
  state_.watches.push_back(std::move(watch));
  if (state_.running) return;
  state_.running = true;
  try {
    start();
  } catch (const std::system_error& error) {
    // The ranks have agreed to shunt: this one may not fall back alone.
    log_warning("no thread to watch waiting kernels (%s): stuck ranks will not be reported",
                error.what());
  }
}

namespace {

// Signals are the program's affair: none may choose a thread of ours to be handled in.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

std::atomic<bool> dump_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a handler writes it

}  // namespace

void Watchdog::dump_on(int number) {
  static std::atomic<bool> done{false};
  if (number == 0 || done.exchange(true)) return;
  struct sigaction action{}, before{};
  sigaction(number, nullptr, &before);
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) {
    log_warning("signal %d is handled by the program or ignored: it does not show the last calls", number);
    return;
  }
  action.sa_handler = [](int) { dump_asked.store(true, std::memory_order_relaxed); };
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

void Watchdog::start() {
  const NoSignals inherited;
  std::thread([this] {
    for (;;) {
      std::this_thread::sleep_for(kPeriod);
      look_at_all();
    }
  }).detach();
  // Registered now, after the driver was initialised, so that it runs before the driver's own handler.
  static const pid_t owner = getpid();
  std::atexit([] {
    if (getpid() != owner) return;  // a forked child has neither the boards nor the thread
    get().look_at_all();
    std::unique_lock alone(boards_mutex);
    boards_gone = true;
  });
}

void Watchdog::remove(const Watch* watch) {
  std::lock_guard lock(state_.mutex);
  std::erase_if(state_.watches, [&](const auto& w) { return w.get() == watch; });
}

void Watchdog::look_at_all() {
  std::vector<std::shared_ptr<Watch>> watches;
  {
    std::lock_guard lock(state_.mutex);
    watches = state_.watches;
  }
  if (dump_asked.exchange(false, std::memory_order_relaxed)) {
    for (const auto& watch : watches) watch->dump();
  }
  for (const auto& watch : watches) watch->look(Clock::now());
}

}  // namespace shunt
