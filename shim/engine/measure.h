// Which sizes are faster here than in NCCL: both are timed when a communicator is prepared, on its own GPUs and
// placement, and the slowest rank counts.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "shim/engine/gather.h"
#include "shim/engine/timed_sizes.h"

namespace shunt {

enum class TimedPath : uint32_t { kNccl, kOneShot, kTwoShots };
inline constexpr uint32_t kTimedPaths = 3;

// One rank's record of one size.
struct Timing {
  Answer answer;
  float us[kTimedPaths];  // device time of a call
};

// What the ranks found; alike on all of them.
struct Found {
  uint64_t cap = 0;  // bytes; 0: NCCL is faster at every size
  uint32_t two_shot_from = ~0u;
  bool operator==(const Found&) const = default;
};

// The round before: what a rank knows without measuring. Zeros: nothing.
enum class CapSource : uint32_t { kNone = 0, kMeasured = 1, kProfile = 2 };
struct KnownCap {
  CapSource source;
  uint32_t two_shot_from;
  uint64_t cap;
};
// Pure. What all ranks know alike, whatever they know it from: nothing if one does not, or knows something else.
std::optional<Found> agreed(std::span<const KnownCap> table);

// Pure. The slowest rank's times, nothing if a rank has none.
std::optional<std::array<float, kTimedPaths>> slowest(std::span<const Timing> table);
// Pure: `times[i]` of kTimedSizes[i]. A size is shunted if it is clearly faster, and so are all smaller ones.
bool wins(const std::array<float, kTimedPaths>& times);
Found judge_times(std::span<const std::array<float, kTimedPaths>> times);

// Times all sizes up to verdict.cap with all ranks (each size a round), on the sets of `locals`. `calls` counts the
// calls that were recorded. A rank that cannot go on says no: then nothing is returned, and verdict.shunt is
// false. Throws GatherFailed.
std::optional<Found> measure(std::span<LocalRank> locals, Gatherer& gatherer, Verdict& verdict,
                             uint32_t& calls);

}  // namespace shunt
