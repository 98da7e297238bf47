#include "tools/tune/run.h"

#include <algorithm>

#include "tools/bench/sizes.h"
#include "tools/tune/report.h"
#include "tools/tune/rules.h"

namespace shunt::tune {
namespace {

double weight_of(Collective collective) { return collective == Collective::kAllReduce ? 3 : 1; }

// The next smaller size of this collective, or null.
const Point* smaller_than(const std::vector<Point>& points, Collective collective, uint64_t bytes) {
  const Point* best = nullptr;
  for (const Point& point : points) {
    if (point.collective != collective || point.bytes >= bytes) continue;
    if (best == nullptr || point.bytes > best->bytes) best = &point;
  }
  return best;
}

bool has_elements(Collective collective, uint64_t bytes, uint32_t ranks) {
  return bytes / 2 / (collective == Collective::kAllReduce ? 1 : ranks) > 0;
}

}  // namespace

std::vector<Point> measure_points(const Plan& plan, const Measure& measure,
                                  const std::function<double()>& now,
                                  const std::function<void(const Progress&)>& on_progress,
                                  const std::function<void(const Point&)>& on_point) {
  const double begin = now();
  double weights = 0;
  for (const Collective collective : plan.collectives) weights += weight_of(collective);
  std::vector<Point> points;
  for (const Collective collective : plan.collectives) {
    const double left = begin + plan.seconds - now();
    const double end = now() + left * weight_of(collective) / weights;
    weights -= weight_of(collective);
    for (const uint64_t bytes : order_of_sizes(plan.first, plan.last)) {
      if (!has_elements(collective, bytes, plan.ranks) || now() >= end) continue;
      const Measure watched = [&](const Try& t) {
        on_progress({std::clamp((now() - begin) / plan.seconds, 0.0, 1.0),
                     std::string(name_of(collective)) + " " + bench::bytes_text(bytes) + " " +
                         to_text(t.wish)});
        return measure(t);
      };
      const Limits limits{plan.margin, plan.unsafe, [&] { return now() >= end; }};
      const Point* const smaller = smaller_than(points, collective, bytes);
      points.push_back(explore(watched, collective, bytes, smaller, limits));
      on_point(points.back());
    }
  }
  return points;
}

tuner::Profile profile_of(const tuner::Fingerprint& machine, std::vector<Point> points) {
  std::ranges::sort(points, {}, &Point::bytes);
  tuner::Profile profile;
  profile.machine = machine;
  for (const Collective collective : tuner::kCollectives) {
    std::vector<Point> own;
    std::ranges::copy_if(points, std::back_inserter(own),
                         [&](const Point& point) { return point.collective == collective; });
    profile.rules(collective) = rules_of(own);
  }
  profile.measured = measured_json(points);
  return profile;
}

}  // namespace shunt::tune
