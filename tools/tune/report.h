// What people read of profiles and of a tuning run.
#pragma once

#include <string>
#include <vector>

#include "plugin/profile.h"
#include "tools/tune/explore.h"

namespace shunt::tune {

// The part "measured" of a profile: every figure of every size, as JSON text.
std::string measured_json(const std::vector<Point>& points);

// One row a size: NCCL's own choice, the profile's, and what that gains.
std::string point_table(const std::vector<Point>& points);
std::string point_title();
std::string point_line(const Point& point);

// "push: 64K are shunted, in one shot"
std::string cap_text(const tuner::ShuntCap& cap);

// Everything that a profile says.
std::string show(const tuner::Profile& profile);

// What differs between two profiles; empty: machine, words, caps and rules are equal. Times do not
// count.
std::string diff(const tuner::Profile& a, const tuner::Profile& b);

}  // namespace shunt::tune
