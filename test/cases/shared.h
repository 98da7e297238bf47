// What the processes of one job share: a memfd that the parent makes and every rank inherits.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

namespace cases {

inline constexpr int kMaxJobRanks = 16;
inline constexpr size_t kDataBytes = size_t{64} << 20;  // sparse: costs what is touched

struct Shared {
  struct Id {
    ncclUniqueId id;
    std::atomic<uint32_t> ready;
  };
  Id ids[2048];                      // of a job's communicators
  std::atomic<uint32_t> flags[256]; // the job's own signals; start at 0
  std::atomic<uint32_t> arrived[kMaxJobRanks];  // barriers passed or waited at by each rank
  std::atomic<int32_t> pids[kMaxJobRanks];
  alignas(64) unsigned char data[kDataBytes];  // the job's own: results that ranks or parent compare
};

// A deadline by looks: between two of them at most a quarter of a second counts, since a virtual machine may
// stand still for minutes, which is nobody's hang.
class Patience {
 public:
  explicit Patience(double seconds) : left_(seconds) {}
  bool over() {
    const auto now = std::chrono::steady_clock::now();
    left_ -= std::min(std::chrono::duration<double>(now - last_).count(), 0.25);
    last_ = now;
    return left_ < 0;
  }

 private:
  double left_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Polls until `holds`; throws after `seconds`, so that nothing in a test waits for ever.
template <typename F>
void wait_until(F&& holds, const std::string& what, double seconds = 60) {
  Patience patience(seconds);
  for (int turn = 0; !holds(); ++turn) {
    if (turn < 50) {
      std::this_thread::yield();
      continue;
    }
    if (patience.over()) throw std::runtime_error("no sign of " + what);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace cases
