// The library's log, as far as the benchmark reads it: the counters that it prints at exit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace shunt::bench {

using Counters = std::map<std::string, uint64_t>;

// The counters of a stats line: one with the word "stats" followed by key=number pairs, such as
// "nccl-shunt[12] stats shunted=1 forwarded=2". nullopt: another line. Other words are passed over,
// so that the line may grow.
std::optional<Counters> parse_stats(std::string_view line);

}  // namespace shunt::bench
