#include "shim/engine/measure.h"

#include <algorithm>

#include "shim/engine/log.h"
#include "shim/engine/probe.h"

namespace shunt {
namespace {

constexpr int kCalls = 10;    // that are timed at once, after one that brings the ranks together
constexpr int kRepeats = 3;   // the fastest counts: everything that disturbs makes it slower
constexpr uint64_t kHoldNs = 20'000'000;
constexpr const char* kRound = "measure";

void check_nccl(const NcclLibrary& library, ncclResult_t result) {
  if (result != ncclSuccess) throw GatherFailed{result, std::string("ncclAllReduce: ") + library.error_string(result)};
}

// One local's buffers and events.
class Timer {
 public:
  Timer(LocalRank& local, uint64_t cap) : local_(local), scratch_(*local.device, 2 * cap) {
    cu::ContextScope current(local.device->context);
    SHUNT_CU(event_create, &begin_, 0);
    SHUNT_CU(event_create, &end_, 0);
    SHUNT_CU(set32, scratch_.device(), 0, 2 * cap / 4, stream());
    SHUNT_CU(host_device_pointer, &go_on_device_, go(), 0);
    recv_ = scratch_.device() + cap;
  }
  ~Timer() {
    try {
      cu::ContextScope current(local_.device->context);
      if (begin_ != nullptr) cu::api().event_destroy(begin_);
      if (end_ != nullptr) cu::api().event_destroy(end_);
    } catch (const cu::Error&) {
      // The context is gone, and the events with it.
    }
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  cu::Stream stream() const { return local_.stream->get(); }
  void hold() {
    __atomic_store_n(go(), 0u, __ATOMIC_RELEASE);
    cu::ContextScope current(local_.device->context);
    HoldParams params{reinterpret_cast<const uint32_t*>(go_on_device_), kHoldNs};
    void* arguments[] = {&params};
    SHUNT_CU(launch, local_.device->hold, 1, 1, 1, 1, 1, 1, 0, stream(), arguments, nullptr);
  }
  void release() { __atomic_store_n(go(), 1u, __ATOMIC_RELEASE); }
  void mark(bool end) {
    cu::ContextScope current(local_.device->context);
    SHUNT_CU(event_record, end ? end_ : begin_, stream());
  }
  float elapsed_us() const {
    cu::ContextScope current(local_.device->context);
    float ms = 0;
    SHUNT_CU(event_elapsed, &ms, begin_, end_);
    return ms * 1e3f;
  }

  void call_nccl(uint64_t bytes) {
    cu::ContextScope current(local_.device->context);
    const NcclLibrary& library = local_.communicator->library();
    check_nccl(library, library.call<k_ncclAllReduce>(
                            reinterpret_cast<const void*>(scratch_.device()), reinterpret_cast<void*>(recv_),
                            size_t{bytes / 2}, ncclFloat16, ncclSum, local_.communicator->handle(), stream()));
  }
  void call_shunt(uint64_t bytes, const DeviceLimits& limits, uint32_t number) {
    cu::ContextScope current(local_.device->context);
    const AllReduceCall call{reinterpret_cast<const void*>(scratch_.device()), reinterpret_cast<void*>(recv_),
                             bytes / 2, DataType::kFloat16, ReduceOp::kSum, stream()};
    cu::check(launch_all_reduce(*local_.set, limits, {&call, 1}, number, static_cast<uint64_t>(kProbeSeconds * 1e9)),
              "cuLaunchKernel");
  }

 private:
  uint32_t* go() const { return reinterpret_cast<uint32_t*>(scratch_.host()); }

  LocalRank& local_;
  Scratch scratch_;
  cu::Event begin_ = nullptr, end_ = nullptr;
  cu::Ptr recv_ = 0, go_on_device_ = 0;
};

using Timers = std::vector<std::unique_ptr<Timer>>;

// The ranks of one thread make each call in one group, since the first would wait for the others.
void call_all(Timers& timers, std::span<LocalRank> locals, TimedPath path, uint64_t bytes,
              const DeviceLimits& limits, uint32_t number) {
  if (path != TimedPath::kNccl) {
    for (const auto& timer : timers) timer->call_shunt(bytes, limits, number);
    return;
  }
  const NcclLibrary& library = locals[0].communicator->library();
  const bool several = locals.size() > 1;
  if (several) check_nccl(library, library.call<k_ncclGroupStart>());
  try {
    for (const auto& timer : timers) timer->call_nccl(bytes);
  } catch (...) {
    if (several) (void)library.call<k_ncclGroupEnd>();  // left open it would swallow every later call
    throw;
  }
  if (several) check_nccl(library, library.call<k_ncclGroupEnd>());
}

// Microseconds a call, of each local.
std::vector<float> time_once(Timers& timers, std::span<LocalRank> locals, Gatherer& gatherer, TimedPath path,
                             uint64_t bytes, const DeviceLimits& limits, uint32_t& calls) {
  const auto call = [&] { call_all(timers, locals, path, bytes, limits, path == TimedPath::kNccl ? 0 : ++calls); };
  for (const auto& timer : timers) timer->hold();
  call();
  for (const auto& timer : timers) timer->mark(false);
  for (int i = 0; i < kCalls; ++i) call();
  for (const auto& timer : timers) timer->mark(true);
  for (const auto& timer : timers) timer->release();
  gatherer.wait(kRound);
  std::vector<float> times;
  for (const auto& timer : timers) times.push_back(timer->elapsed_us() / kCalls);
  return times;
}

void time_path(Timers& timers, std::span<LocalRank> locals, Gatherer& gatherer, const Verdict& verdict,
               TimedPath path, uint64_t bytes, std::span<Timing> out, uint32_t& calls) {
  DeviceLimits limits = verdict.limits;
  limits.two_shot_from = path == TimedPath::kTwoShots ? 0 : ~0u;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const std::vector<float> times = time_once(timers, locals, gatherer, path, bytes, limits, calls);
    for (size_t i = 0; i < times.size(); ++i) {
      float& us = out[i].us[static_cast<size_t>(path)];
      us = repeat == 0 ? times[i] : std::min(us, times[i]);
    }
  }
}

// NCCL's calls are the same on all ranks or none: one that fails in between ends preparing, since the next round
// would meet another rank's measured call.
void time_nccl(Timers& timers, std::span<LocalRank> locals, Gatherer& gatherer, const Verdict& verdict,
               uint64_t bytes, std::span<Timing> out, uint32_t& calls) {
  try {
    // It may connect here for the first time at this size, which waits for the device: not behind a hold.
    call_all(timers, locals, TimedPath::kNccl, bytes, verdict.limits, 0);
    gatherer.wait(kRound);
    time_path(timers, locals, gatherer, verdict, TimedPath::kNccl, bytes, out, calls);
  } catch (const cu::Error& error) {
    throw GatherFailed{ncclUnhandledCudaError, std::string(kRound) + ": " + error.what()};
  }
}

// Why the times of this size are none, empty if they are some. A wait that came to its deadline makes every later
// kernel end at once: fast, and wrong.
std::string time_shunt(Timers& timers, std::span<LocalRank> locals, Gatherer& gatherer, const Verdict& verdict,
                       uint64_t bytes, std::span<Timing> out, uint32_t& calls) {
  try {
    for (const TimedPath path : {TimedPath::kOneShot, TimedPath::kTwoShots}) {
      time_path(timers, locals, gatherer, verdict, path, bytes, out, calls);
    }
    for (const LocalRank& local : locals) {
      if (local.set->clean_state(local.stream->get()) == 0) return "a measured call did not end by data";
    }
  } catch (const cu::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

std::optional<Found> measure(std::span<LocalRank> locals, Gatherer& gatherer, Verdict& verdict,
                             uint32_t& calls) {
  Timers timers;
  std::string trouble;
  try {
    for (LocalRank& local : locals) timers.push_back(std::make_unique<Timer>(local, verdict.cap));
  } catch (const cu::Error& error) {
    trouble = error.what();
  }
  std::vector<std::array<float, kTimedPaths>> times;
  // The first round tells whether all ranks can: nobody may wait for one that cannot.
  for (size_t size = 0; size <= std::size(kTimedSizes); ++size) {
    if (size > 0 && kTimedSizes[size - 1] > verdict.cap) break;
    std::vector<Timing> mine(locals.size(), Timing{{1, 0, 0, 0, -1, 0, {}}, {1, 1, 1}});
    if (size > 0) {
      const uint64_t bytes = kTimedSizes[size - 1];
      try {
        time_nccl(timers, locals, gatherer, verdict, bytes, mine, calls);
        trouble = time_shunt(timers, locals, gatherer, verdict, bytes, mine, calls);
      } catch (...) {
        for (auto& timer : timers) (void)timer.release();  // NCCL may still write to its memory
        throw;
      }
    }
    for (Timing& timing : mine) {
      if (!trouble.empty()) refuse(timing.answer, trouble);
    }
    const std::vector<Timing> table = gatherer.gather<Timing>(mine, kRound);
    std::vector<Answer> answers;
    for (const Timing& timing : table) answers.push_back(timing.answer);
    judge_answers(verdict, answers, kRound);
    if (!verdict.shunt) return {};
    if (size == 0) continue;
    const auto now = slowest(table);
    if (!now) break;
    if (locals[0].rank() == 0) {
      log_debug("communicator %s: %llu bytes: NCCL %.2f us, one shot %.2f us, two shots %.2f us",
                locals[0].communicator->key().c_str(),
                static_cast<unsigned long long>(kTimedSizes[size - 1]), (*now)[0], (*now)[1], (*now)[2]);
    }
    times.push_back(*now);
    if (!wins(*now)) break;
  }
  return judge_times(times);
}

}  // namespace shunt
