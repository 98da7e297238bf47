#include "shim/engine/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "shim/engine/log.h"
#include "shim/engine/probe.h"

namespace shunt {
namespace {

constexpr int kCalls = 10;    // that are timed at once, after one that brings the ranks together
constexpr int kRepeats = 3;   // the fastest counts: everything that disturbs makes it slower
constexpr uint64_t kHoldNs = 20'000'000;
constexpr double kLimitSeconds = 5;

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
    const ncclResult_t result = library.call<k_ncclAllReduce>(
        reinterpret_cast<const void*>(scratch_.device()), reinterpret_cast<void*>(recv_), size_t{bytes / 2},
        ncclFloat16, ncclSum, local_.communicator->handle(), stream());
    if (result != ncclSuccess) throw GatherFailed{result, std::string("ncclAllReduce: ") + library.error_string(result)};
  }
  void call_shunt(uint64_t bytes, const DeviceLimits& limits, uint32_t number) {
    cu::ContextScope current(local_.device->context);
    const AllReduceCall call{reinterpret_cast<const void*>(scratch_.device()), reinterpret_cast<void*>(recv_),
                             bytes / 2, DataType::kFloat16, ReduceOp::kSum, stream()};
    cu::check(launch_all_reduce(*local_.set, limits, call, number, static_cast<uint64_t>(kProbeSeconds * 1e9)),
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
  if (locals.size() > 1) (void)library.call<k_ncclGroupStart>();
  for (const auto& timer : timers) timer->call_nccl(bytes);
  if (locals.size() > 1) (void)library.call<k_ncclGroupEnd>();
}

void wait_idle(std::span<LocalRank> locals) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(kLimitSeconds));
  for (LocalRank& local : locals) {
    cu::ContextScope current(local.device->context);
    while (!local.stream->idle()) {
      if (local.communicator->aborted()) throw GatherFailed{ncclInvalidUsage, "aborted"};
      if (Clock::now() > deadline) throw cu::Error("the measured calls do not end", -1);
      std::this_thread::sleep_for(std::chrono::microseconds(5));
    }
  }
}

// Microseconds a call, of each local.
std::vector<float> time_once(Timers& timers, std::span<LocalRank> locals, TimedPath path, uint64_t bytes,
                             const DeviceLimits& limits, uint32_t& calls) {
  const auto call = [&] { call_all(timers, locals, path, bytes, limits, path == TimedPath::kNccl ? 0 : ++calls); };
  for (const auto& timer : timers) timer->hold();
  call();
  for (const auto& timer : timers) timer->mark(false);
  for (int i = 0; i < kCalls; ++i) call();
  for (const auto& timer : timers) timer->mark(true);
  for (const auto& timer : timers) timer->release();
  wait_idle(locals);
  std::vector<float> times;
  for (const auto& timer : timers) times.push_back(timer->elapsed_us() / kCalls);
  return times;
}

void time_size(Timers& timers, std::span<LocalRank> locals, const Verdict& verdict, uint64_t bytes,
               std::span<Timing> out, uint32_t& calls) {
  DeviceLimits limits = verdict.limits;
  // NCCL may connect here for the first time at this size, which waits for the device: not behind a hold.
  call_all(timers, locals, TimedPath::kNccl, bytes, limits, 0);
  wait_idle(locals);
  for (uint32_t path = 0; path < kTimedPaths; ++path) {
    limits.two_shot_from = static_cast<TimedPath>(path) == TimedPath::kTwoShots ? 0 : ~0u;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const std::vector<float> times =
          time_once(timers, locals, static_cast<TimedPath>(path), bytes, limits, calls);
      for (size_t i = 0; i < times.size(); ++i) {
        float& us = out[i].us[path];
        us = repeat == 0 ? times[i] : std::min(us, times[i]);
      }
    }
  }
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
    std::vector<Timing> mine(locals.size(), Timing{{1, 0, 0, -1, 0, {}}, {1, 1, 1}});
    try {
      if (size > 0) time_size(timers, locals, verdict, kTimedSizes[size - 1], mine, calls);
    } catch (const cu::Error& error) {
      trouble = error.what();
    }
    for (Timing& timing : mine) {
      if (!trouble.empty()) refuse(timing.answer, trouble);
    }
    const std::vector<Timing> table = gatherer.gather<Timing>(mine, "measure");
    std::vector<Answer> answers;
    for (const Timing& timing : table) answers.push_back(timing.answer);
    judge_answers(verdict, answers, "measure");
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
