// The list of cases that a benchmark measures and checks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/options.h"

namespace shunt::bench {

struct Case {
  Mode mode = Mode::kEager;
  uint64_t count = 0;  // elements
  DataType type = DataType::kBfloat16;
  ReduceOp op = ReduceOp::kSum;
  Place place = Place::kOutOfPlace;

  uint64_t bytes() const { return count * size_of(type); }
  bool operator==(const Case&) const = default;
};

std::string describe(const Case& c);  // "graph 4K bfloat16 sum in"

// Every combination, eager ones first: capturing a communicator's calls once slows its later eager
// calls in NCCL, so a graph case before an eager one would flatter the shunt. A size smaller than
// one element of a type gives no case for that type; sizes that round to the same count give one.
std::vector<Case> make_cases(const Options& options);

}  // namespace shunt::bench
