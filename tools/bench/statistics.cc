#include "tools/bench/statistics.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace shunt::bench {

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double minimum(const std::vector<double>& values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return *std::min_element(values.begin(), values.end());
}

std::vector<double> slowest(const std::vector<std::vector<double>>& samples_by_rank) {
  if (samples_by_rank.empty()) return {};
  size_t length = std::numeric_limits<size_t>::max();
  for (const auto& sample : samples_by_rank) length = std::min(length, sample.size());
  std::vector<double> result(length);
  for (size_t i = 0; i < length; ++i) {
    result[i] = samples_by_rank[0][i];
    for (const auto& sample : samples_by_rank) result[i] = std::max(result[i], sample[i]);
  }
  return result;
}

}  // namespace shunt::bench
