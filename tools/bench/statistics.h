// Summaries of repeated measurements.
#pragma once

#include <vector>

namespace shunt::bench {

// Of an empty sample both are NaN; of an even number of values the median is the mean of the middle
// two.
double median(std::vector<double> values);
double minimum(const std::vector<double>& values);

// Element i is the largest of every sample's element i: a collective is as slow as its slowest
// rank. Samples may differ in length; the shortest decides.
std::vector<double> slowest(const std::vector<std::vector<double>>& samples_by_rank);

}  // namespace shunt::bench
