// The search for the best configuration of one collective at one size. Knows no GPU: it asks
// `measure`.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "tools/tune/messages.h"

namespace shunt::tune {

// What a try gave, all ranks together.
struct Outcome {
  Status status = Status::kMeasured;
  double us = 0;        // a call; median over replays of the slowest rank
  std::string problem;  // a wrong result, with its rank
  Wish cheapest;
  uint64_t allowed = 0;
};
using Measure = std::function<Outcome(const Try&)>;

struct Limits {
  double margin = 0.03;  // a gain below this part of NCCL's time is none
  bool unsafe = false;
  std::function<bool()> out_of_time = [] { return false; };
};

// What was found at one size.
struct Point {
  Collective collective = Collective::kAllReduce;
  uint64_t bytes = 0;
  Wish default_wish;
  double default_us = 0;
  Wish best;  // empty: NCCL's own choice is the best, or nothing better held up
  double best_us = 0;
  std::map<std::string, double> tried;  // by to_text of the wish
  std::vector<std::string> problems;    // "ring/LL128: rank 1: ..."
};

// `smaller`: the point of the next smaller size that was measured, or null; what was hopeless there
// is not tried again. A winner is measured again in turn with NCCL's choice, three times, and must
// win each time: the best of many noisy figures is too good.
Point explore(const Measure& measure, Collective collective, uint64_t bytes, const Point* smaller,
              const Limits& limits);

// How many calls a graph should hold if one takes `us`.
uint32_t calls_for(double us);

}  // namespace shunt::tune
