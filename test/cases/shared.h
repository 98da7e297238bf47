// What the processes of one job share: a memfd that the parent makes and every rank inherits.
#pragma once

#include <nccl.h>

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

// Polls until `holds`; throws after `seconds`, so that nothing in a test waits for ever.
template <typename F>
void wait_until(F&& holds, const std::string& what, double seconds = 60) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (int turn = 0; !holds(); ++turn) {
    if (turn < 50) {
      std::this_thread::yield();
      continue;
    }
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no sign of " + what);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace cases
