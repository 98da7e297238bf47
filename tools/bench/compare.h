// Two results of `nccl-shunt bench --json`, side by side.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::bench {

// A smaller change of the median counts as noise, whatever the samples say.
inline constexpr double kNoise = 0.03;
// Of fewer samples it is chance that all of one lie on one side of the other's.
inline constexpr size_t kFewestSamples = 4;

// One path of one case. Samples in microseconds a call: of device time in a graph, of eager calls
// until they are done.
struct TimedCase {
  std::string name;  // "graph 4K bfloat16 sum out nccl"
  std::vector<double> samples;
};

struct TimedRun {
  std::string machine;                   // GPUs, NCCL, driver, commit and date, for people
  std::vector<std::string> environment;  // NAME=value, sorted
  std::vector<TimedCase> cases;          // those that were timed
  size_t failures = 0;
  bool emulated = false;
};

// Throws std::runtime_error with one line where the text is no such result.
TimedRun parse_run(std::string_view json);

enum class Change { kNone, kFaster, kSlower };
// Of B against A. Beyond noise only if the medians differ by more than kNoise and all samples of
// one are on the same side of all of the other's, and there are kFewestSamples of each.
Change change_of(const std::vector<double>& a, const std::vector<double>& b);

struct Compared {
  std::string name;
  double a_us = 0, b_us = 0;  // medians
  Change change = Change::kNone;
};
struct Comparison {
  std::vector<Compared> cases;  // in A's order
  std::vector<std::string> only_a, only_b;
  size_t count(Change change) const;
};
Comparison compare_runs(const TimedRun& a, const TimedRun& b);

// What people read.
std::string text_of(const TimedRun& a, const TimedRun& b, const Comparison& comparison);

}  // namespace shunt::bench
