// A whole tuning run: which points, in what time, and the profile of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plugin/profile.h"
#include "tools/tune/explore.h"

namespace shunt::tune {

struct Plan {
  std::vector<Collective> collectives;
  uint64_t first = 8, last = uint64_t{256} << 20;  // bytes
  uint32_t ranks = 2;                              // sizes that give a rank no element are left out
  double seconds = 60;
  double margin = 0.03;
  bool unsafe = false;
};

struct Progress {
  double part = 0;  // of the time, 0 to 1
  std::string what;
};

// Measures until all points are done or the time is up; an all-reduce gets three times the time of
// the others, and what one leaves over is the next one's. `now`: seconds, from anywhere.
std::vector<Point> measure_points(const Plan& plan, const Measure& measure,
                                  const std::function<double()>& now,
                                  const std::function<void(const Progress&)>& on_progress,
                                  const std::function<void(const Point&)>& on_point);

// Points in any order.
tuner::Profile profile_of(const tuner::Fingerprint& machine, std::vector<Point> points);

}  // namespace shunt::tune
