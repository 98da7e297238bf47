#include <algorithm>
#include <cmath>

#include "shim/engine/measure.h"

namespace shunt {
namespace {
constexpr float kGain = 0.97f;  // less than that is noise
}  // namespace

std::optional<Found> agreed(std::span<const KnownCap> table) {
  if (table.empty()) return {};
  const bool all = std::all_of(table.begin(), table.end(), [&](const KnownCap& known) {
    return known.source != CapSource::kNone && known.cap == table[0].cap &&
           known.two_shot_from == table[0].two_shot_from;
  });
  if (!all) return {};
  return Found{table[0].cap, table[0].two_shot_from};
}

std::optional<std::array<float, kTimedPaths>> slowest(std::span<const Timing> table) {
  std::array<float, kTimedPaths> out{};
  for (const Timing& timing : table) {
    for (uint32_t path = 0; path < kTimedPaths; ++path) {
      if (!std::isfinite(timing.us[path]) || timing.us[path] <= 0) return {};
      out[path] = std::max(out[path], timing.us[path]);
    }
  }
  return out;
}

bool wins(const std::array<float, kTimedPaths>& times) {
  return std::min(times[1], times[2]) <= kGain * times[0];
}

Found judge_times(std::span<const std::array<float, kTimedPaths>> times) {
  Found found;
  size_t size = 0;
  while (size < times.size() && wins(times[size])) found.cap = kTimedSizes[size++];
  // From the largest size down, as long as two shots are clearly faster.
  while (size-- > 0 && times[size][2] <= kGain * times[size][1]) {
    found.two_shot_from = static_cast<uint32_t>(kTimedSizes[size]);
  }
  return found;
}

}  // namespace shunt
