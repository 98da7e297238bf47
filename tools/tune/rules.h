// From measured points to the rules of a profile, and the order in which points are measured.
#pragma once

#include <cstdint>
#include <vector>

#include "plugin/profile.h"
#include "tools/tune/explore.h"

namespace shunt::tune {

// `points` of one collective in ascending sizes. Between two sizes the rule of the nearer one
// holds, on a scale of factors; next to a size where NCCL's own choice was best, and at both ends,
// a rule reaches no further than its measured sizes. Neighbours that lie further apart than a
// factor of 4.5 are none.
std::vector<tuner::Rule> rules_of(const std::vector<Point>& points);

// Powers of two from the first to the last (both inclusive), every second one first: if the time
// runs out, the whole range has been looked at.
std::vector<uint64_t> order_of_sizes(uint64_t first, uint64_t last);

}  // namespace shunt::tune
