// What a process has found out about the GPUs of its communicators.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "shim/engine/measure.h"
#include "shim/engine/verdict.h"

namespace shunt {

// By the GPUs of a communicator, in any order: a broken machine is found out once, not anew by each
// communicator, and so is the cap.
class KnownGpus {
 public:
  static KnownGpus& get() {
    static auto& known = *new KnownGpus;
    return known;
  }
  // A bit for each placement that failed.
  uint32_t broken(std::span<const Facts> facts) {
    std::lock_guard lock(mutex_);
    return by_gpus_[key(facts)].broken;
  }
  void add_broken(std::span<const Facts> facts, Placement placement) {
    std::lock_guard lock(mutex_);
    by_gpus_[key(facts)].broken |= 1u << static_cast<uint32_t>(placement);
  }
  std::optional<Found> found(std::span<const Facts> facts, Placement placement) {
    std::lock_guard lock(mutex_);
    return by_gpus_[key(facts)].found[static_cast<size_t>(placement)];
  }
  void set_found(std::span<const Facts> facts, Placement placement, const Found& found) {
    std::lock_guard lock(mutex_);
    by_gpus_[key(facts)].found[static_cast<size_t>(placement)] = found;
  }

 private:
  struct Known {
    uint32_t broken = 0;
    std::optional<Found> found[kPlacements];
  };
  static std::string key(std::span<const Facts> facts) {
    std::vector<std::string> gpus;
    for (const Facts& f : facts) gpus.emplace_back(reinterpret_cast<const char*>(f.gpu), sizeof(f.gpu));
    std::sort(gpus.begin(), gpus.end());
    return std::accumulate(gpus.begin(), gpus.end(), std::string());
  }
  std::mutex mutex_;
  std::map<std::string, Known> by_gpus_;
};

}  // namespace shunt
