// The library's log, as far as tools read it: the counters that it prints at exit, and what it says
// while it prepares a communicator (SHUNT_LOG=debug).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::bench {

using Counters = std::map<std::string, uint64_t>;

// The counters of a stats line: one with the word "stats" followed by key=number pairs, such as
// "nccl-shunt[12] stats shunted=1 forwarded=2". nullopt: another line. Other words are passed over,
// so that the line may grow.
std::optional<Counters> parse_stats(std::string_view line);

// A size that was timed to find the cap; microseconds a call.
struct TimedSize {
  uint64_t bytes = 0;
  double nccl_us = 0, one_shot_us = 0, two_shot_us = 0;
  bool operator==(const TimedSize&) const = default;
};

// What the library said of one communicator.
struct Prepared {
  std::optional<bool> on;      // nullopt: it said nothing
  std::string off_reason;      // where it is off
  std::string placement;       // "push", "pull", "host"
  uint64_t cap = 0;            // bytes
  std::string cap_source;      // "measured", "of the profile"; empty: by setting or default
  uint64_t two_shot_from = 0;  // bytes; 0: one shot at every size
  uint64_t slab_bytes = 0;     // device memory of a rank
  uint64_t host_bytes = 0;     // shared host memory of a rank
  double prepared_ms = 0;
  std::vector<TimedSize> times;
  std::vector<std::string> troubles;  // its warnings and errors, whatever they are about

  // Takes a line of any process of the job. False: nothing of the above.
  bool add(std::string_view line);
};

}  // namespace shunt::bench
