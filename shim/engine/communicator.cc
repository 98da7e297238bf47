#include "shim/engine/communicator.h"

#include <chrono>
#include <new>
#include <thread>

#include "shim/engine/log.h"
#include "shim/engine/process_settings.h"

namespace shunt {
namespace {
std::atomic<unsigned long long> shunting_communicators{0};
// A peer that has come to the end of an operation leaves this rank no more than its tail to run.
constexpr auto kSettle = std::chrono::milliseconds(600);
constexpr const char* kOrdering = "ordering a communicator's operations";
}  // namespace

unsigned long long Communicator::ever_shunting() { return shunting_communicators.load(); }

Communicator::Communicator(NcclLibrary& library, ncclComm_t handle, std::string key, bool blocking)
    : library_(library), handle_(handle), key_(std::move(key)), blocking_(blocking) {
  // A communicator that is not ready yet answers nothing; it is forwarded anyway.
  if (!blocking_) return;
  if (library.comm_user_rank(handle, &rank_) != ncclSuccess ||
      library.comm_count(handle, &ranks_) != ncclSuccess ||
      library.comm_cu_device(handle, &device_) != ncclSuccess) {
    blocking_ = false;
  }
}

Communicator::~Communicator() {
  retire();
  if (opened_on_ == nullptr) return;
  if (!context_lives(*opened_on_)) {
    order_.forget();
    return;
  }
  try {
    // Whoever lets go of it last has any context current, or none, and may be capturing.
    cu::RelaxedCaptureScope relaxed;
    cu::ContextScope current(opened_on_->context);
    order_.close();
  } catch (const cu::Error& error) {
    log_debug("communicator %s: its events: %s", key_.c_str(), error.what());
  }
}

void Communicator::open() {
  opened_on_ = &gpu_device(device_);
  cu::ContextScope current(opened_on_->context);
  order_.open();
}

void Communicator::adopt(const Verdict& verdict, std::unique_ptr<SlabSet> set,
                         std::shared_ptr<Watch> watch) {
  verdict_ = verdict;
  set_ = std::move(set);
  watch_ = std::move(watch);
  if (verdict_.shunt) {
    watch_->keep_calls(ring_);
    Watchdog::get().add(watch_);
    Watchdog::get().dump_on(process_settings().dump_signal);
    if (verdict_.verify != 0 && rank_ == 0) {
      log_info(
          "communicator %s: one of %u eager calls is compared with NCCL's result (SHUNT_VERIFY)",
          key_.c_str(), verdict_.verify);
    }
    shunting_communicators.fetch_add(1);
  }
  shunting_.store(verdict_.shunt, std::memory_order_release);
}

ncclResult_t Communicator::failure() const {
  return watch_ != nullptr && watch_->failed() ? ncclRemoteError : ncclSuccess;
}

// NCCL does not say that a rank of this machine has died: its kernels wait for ever. Only the event
// behind them tells that they do, and the background thread makes no CUDA call; so whoever asks for
// errors looks, or makes another call. Not behind another call, which may wait for room in the
// device's queue.
ncclResult_t Communicator::look_for_failure() noexcept {
  if (!shunting() || aborted() || watch_->dead_peers() == 0) return failure();
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || retired() || lost()) return failure();
  try {
    cu::RelaxedCaptureScope relaxed;
    cu::ContextScope current(set_->device().context);
    if (!order_.waits_for_all()) {
      stuck_since_.reset();
    } else if (!stuck_since_) {
      stuck_since_ = Clock::now();
    } else if (Clock::now() - *stuck_since_ > kSettle) {
      watch_->stuck_in_nccl();
    }
  } catch (const cu::Error& error) {
    log_debug("%s", error.what());
  }
  return failure();
}

ncclResult_t Communicator::to_nccl(cu::Result result, const char* what) const noexcept {
  if (result == cu::kSuccess) return ncclSuccess;
  if (watch_ != nullptr) watch_->look(Clock::now());  // a kernel that trapped has said why
  log_warning("communicator %s: %s", watch_ != nullptr ? watch_->name().c_str() : key_.c_str(),
              cu::error_text(what, result).c_str());
  return ncclUnhandledCudaError;
}

bool Communicator::lost() noexcept {
  if (lost_ || context_lives(*opened_on_)) return lost_;
  lost_ = true;
  log_error("communicator %s: the context of its GPU was reset (cudaDeviceReset?): its calls fail",
            key_.c_str());
  return true;
}

ncclResult_t Communicator::all_reduce(std::span<const AllReduceCall> calls,
                                      Verifications& due) noexcept {
  if (aborted()) return ncclInvalidUsage;
  if (const ncclResult_t failed = look_for_failure(); failed != ncclSuccess) return failed;
  try {
    std::lock_guard lock(mutex_);
    if (retired()) return ncclInvalidUsage;
    if (lost()) return ncclUnhandledCudaError;
    cu::ContextScope current(set_->device().context);
    StreamOrder::Place place;
    const cu::Stream stream = calls.front().stream;
    cu::Result result = order_.before(stream, place);
    if (result != cu::kSuccess) return to_nccl(result, kOrdering);
    const uint32_t number = calls_ + 1;
    calls_ += static_cast<uint32_t>(calls.size());
    // Captured calls are captured on all ranks, so all ranks count alike (NCCL User Guide, "Using
    // NCCL with CUDA Graphs": whether an operation is captured must be uniform over all ranks).
    if (verdict_.verify != 0 && !place.capturing) {
      for (size_t i = 0; i < calls.size(); ++i) {
        if (++eager_ % verdict_.verify != 0) continue;
        cu::RelaxedCaptureScope relaxed;  // memory is allocated; another thread may be capturing
        due.push_back(std::make_unique<Verification>(*this, calls, i, number, set_->device()));
        result = due.back()->keep_input();
        if (result != cu::kSuccess) return to_nccl(result, "verifying a call");
      }
    }
    result = launch_all_reduce(*set_, verdict_.limits, calls, number);
    if (result != cu::kSuccess) return to_nccl(result, "launching an all-reduce");
    watch_->set_in_nccl(false);
    return to_nccl(order_.after(stream, place, StreamOrder::By::kShunt), kOrdering);
  } catch (const cu::Error& error) {
    return to_nccl(error.code, "a shunted call");
  } catch (const std::bad_alloc&) {
    return ncclSystemError;
  }
}

ncclResult_t Communicator::before_forwarded(cu::Stream stream, StreamOrder::Place& place) noexcept {
  if (!shunting()) return ncclSuccess;
  if (const ncclResult_t failed = look_for_failure(); failed != ncclSuccess) return failed;
  try {
    std::lock_guard lock(mutex_);
    if (retired()) return ncclInvalidUsage;
    if (lost()) return ncclUnhandledCudaError;
    cu::ContextScope current(set_->device().context);
    return to_nccl(order_.before(stream, place), kOrdering);
  } catch (const cu::Error& error) {
    return to_nccl(error.code, kOrdering);
  } catch (const std::bad_alloc&) {
    return ncclSystemError;
  }
}

ncclResult_t Communicator::after_forwarded(cu::Stream stream, const StreamOrder::Place& place,
                                           StreamOrder::By by) noexcept {
  if (!shunting()) return ncclSuccess;
  try {
    std::lock_guard lock(mutex_);
    if (retired()) return ncclInvalidUsage;
    if (lost()) return ncclUnhandledCudaError;
    cu::ContextScope current(set_->device().context);
    if (!place.capturing && by != StreamOrder::By::kShunt) watch_->set_in_nccl(true);
    return to_nccl(order_.after(stream, place, by), kOrdering);
  } catch (const cu::Error& error) {
    return to_nccl(error.code, kOrdering);
  } catch (const std::bad_alloc&) {
    return ncclSystemError;
  }
}

ncclResult_t Communicator::join(cu::Stream stream) noexcept {
  StreamOrder::Place place;
  return before_forwarded(stream, place);
}

ncclResult_t Communicator::extend(cu::Stream stream, StreamOrder::By by) noexcept {
  StreamOrder::Place place;
  const ncclResult_t result = before_forwarded(stream, place);
  return result != ncclSuccess ? result : after_forwarded(stream, place, by);
}

bool Communicator::same_capture(cu::Stream a, cu::Stream b) noexcept {
  try {
    cu::ContextScope current(opened_on_->context);
    StreamOrder::Place of_a, of_b;
    // What cannot be asked fails where it is used.
    if (StreamOrder::locate(a, of_a) != cu::kSuccess ||
        StreamOrder::locate(b, of_b) != cu::kSuccess)
      return true;
    return of_a.capturing == of_b.capturing && of_a.capture == of_b.capture;
  } catch (const cu::Error&) {
    return true;
  }
}

void Communicator::abort() noexcept {
  aborted_.store(true, std::memory_order_release);
  if (watch_ != nullptr) watch_->order(HostOrder::kAbort);
  // Replays come without us and look at the order only once they wait: those that come after an
  // abort that met no waiting kernel must find the stop word too.
  if (set_ != nullptr && context_lives(*opened_on_)) set_->stop();
}

void Communicator::drain() noexcept {
  if (!shunting() || !context_lives(*opened_on_)) return;
  try {
    cu::RelaxedCaptureScope relaxed;
    cu::ContextScope current(opened_on_->context);
    while (!aborted() && look_for_failure() == ncclSuccess && order_.poll() == cu::kNotReady) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } catch (const cu::Error& error) {
    log_debug("drain: %s", error.what());
  }
}

void Communicator::retire() noexcept {
  std::lock_guard lock(mutex_);
  if (set_ == nullptr) return;
  shunting_.store(false, std::memory_order_release);
  if (watch_ != nullptr) {
    watch_->look(Clock::now());
    Watchdog::get().remove(watch_.get());
  }
  // Whether it is clean on all ranks is found out when it is offered again. A dirty one is leaked:
  // a peer may still write to it, and replays of old graphs must still find its stop word.
  const bool again =
      !aborted() && failure() == ncclSuccess && !forwards_.load() && context_lives(*opened_on_);
  if (again) {
    SlabPool::get().give(std::move(set_));
  } else {
    (void)set_.release();
  }
}

}  // namespace shunt
