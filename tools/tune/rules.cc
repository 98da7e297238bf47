#include "tools/tune/rules.h"

#include <cmath>

namespace shunt::tune {
namespace {

bool adjacent(const Point& a, const Point& b) {
  return static_cast<double>(b.bytes) <= 4.5 * static_cast<double>(a.bytes);
}

uint64_t between(const Point& a, const Point& b) {
  return static_cast<uint64_t>(
      std::sqrt(static_cast<double>(a.bytes) * static_cast<double>(b.bytes)));
}

}  // namespace

std::vector<tuner::Rule> rules_of(const std::vector<Point>& points) {
  std::vector<tuner::Rule> rules;
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    if (point.best.empty()) continue;
    tuner::Rule rule{point.bytes, point.bytes, point.best, point.best_us, point.default_us};
    const Point* const before = i > 0 && adjacent(points[i - 1], point) ? &points[i - 1] : nullptr;
    if (before != nullptr && before->best == point.best) {
      rules.back().to = point.bytes;
      rules.back().us = rule.us;  // those of the largest size
      rules.back().default_us = rule.default_us;
      continue;
    }
    if (before != nullptr && !before->best.empty()) {
      rules.back().to = between(*before, point);
      rule.from = rules.back().to + 1;
    }
    rules.push_back(rule);
  }
  return rules;
}

std::vector<uint64_t> order_of_sizes(uint64_t first, uint64_t last) {
  std::vector<uint64_t> sizes, order;
  for (uint64_t size = first; size <= last; size *= 2) {
    sizes.push_back(size);
    if (size > last / 2) break;  // before it overflows
  }
  for (size_t i = 0; i < sizes.size(); i += 2) order.push_back(sizes[i]);
  for (size_t i = 1; i < sizes.size(); i += 2) order.push_back(sizes[i]);
  return order;
}

}  // namespace shunt::tune
