// One piece of work on a stream, from its submission to its end.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>

namespace emu {

inline uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

class Work {
 public:
  bool done() const { return state_.load(std::memory_order_acquire) != 0; }
  void finish(CUresult result) {
    result_ = result;
    finished_ns_ = now_ns();
    state_.store(1, std::memory_order_release);
    state_.notify_all();
  }
  void wait() const { state_.wait(0, std::memory_order_acquire); }
  // Valid once done.
  CUresult result() const { return result_; }
  uint64_t finished_ns() const { return finished_ns_; }

 private:
  std::atomic<uint32_t> state_{0};
  CUresult result_ = CUDA_SUCCESS;
  uint64_t finished_ns_ = 0;
};
using WorkPtr = std::shared_ptr<Work>;

}  // namespace emu
