// The last all-reduces of a communicator, so that ranks that wait for each other can be compared. Written by the
// thread that makes the calls, in a few ns and without a lock; read by any thread at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace shunt {

class CallRing {
 public:
  static constexpr uint64_t kCalls = 64;

  // In the order of the calls. `type`, `op`: NCCL's values, of any NCCL. Two threads that call at once, which NCCL
  // forbids, may lose an entry.
  void add(uint64_t bytes, int type, int op, bool shunted) noexcept {
    const uint64_t call = calls_.load(std::memory_order_relaxed) + 1;
    if (shunted) ++shunted_;
    Entry& entry = entries_[call % kCalls];
    // Between the two stores of `call` the entry is nobody's.
    entry.call.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    entry.bytes.store(bytes, std::memory_order_relaxed);
    entry.what.store(uint64_t{shunted ? shunted_ : 0} << 32 | (static_cast<uint64_t>(type) & 0xffff) << 16 |
                         (static_cast<uint64_t>(op) & 0xffff),
                     std::memory_order_relaxed);
    entry.call.store(call, std::memory_order_release);
    calls_.store(call, std::memory_order_release);
  }

  // "130 all-reduces, the last ones: 129: 4096 float sum shunted as 120, 130: 262144 float sum forwarded". What
  // ranks in step have is the same to the letter. At most `most` calls.
  std::string text(uint64_t most = kCalls) const;

 private:
  struct Entry {
    std::atomic<uint64_t> call{0};  // 1, 2, ...
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> what{0};  // number among the shunted ones, type, operation
  };
  std::atomic<uint64_t> calls_{0};
  uint32_t shunted_ = 0;
  std::array<Entry, kCalls> entries_{};
};

}  // namespace shunt
