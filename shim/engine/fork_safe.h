// A child that is forked while another thread holds a lock gets it locked, by nobody, for ever. What a process
// may lock before it has used CUDA is therefore of this kind. (Afterwards a child can use neither CUDA nor NCCL.)
// For the same reason nothing of that time is a function-local static, whose guard is such a lock.
#pragma once

#include <unistd.h>

#include <atomic>
#include <mutex>

namespace shunt {

// Guards what may be found as it was at any moment: whatever takes long is made beside it and published by one
// store. Not taken around the fork instead (pthread_atfork): a fork in a constructor, under the dynamic linker's
// lock, would wait for an owner that waits for that lock.
class ForkSafeMutex {
 public:
  constexpr ForkSafeMutex() = default;
  ForkSafeMutex(const ForkSafeMutex&) = delete;

  void lock() {
    const pid_t self = getpid();
    for (;;) {
      pid_t owner = 0;
      if (owner_.compare_exchange_weak(owner, self, std::memory_order_acquire)) return;
      if (owner == 0) continue;
      if (owner == self) {
        owner_.wait(owner, std::memory_order_relaxed);
      } else if (owner_.compare_exchange_strong(owner, self, std::memory_order_acquire)) {
        return;  // its owner stayed in the parent
      }
    }
  }
  void unlock() {
    owner_.store(0, std::memory_order_release);
    owner_.notify_all();
  }

 private:
  std::atomic<pid_t> owner_{0};  // 0: free
};

}  // namespace shunt
