// The inputs of a checked call. Every rank can make every rank's inputs again, so a rank checks its
// output alone: nothing is gathered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/bench/cases.h"

namespace shunt::bench {

struct Inputs {
  DataType type = DataType::kBfloat16;
  ReduceOp op = ReduceOp::kSum;
  Data data = Data::kRandom;
  uint32_t ranks = 2;
  uint64_t seed = 0;  // differs for each case and iteration
};

// Inputs of `iteration` of a case.
Inputs inputs_of(const Options& options, const Case& c, uint32_t iteration);

// Writes the elements first, first+1, ... that `rank` contributes. `out` holds whole elements.
// Floats are normal numbers of both signs around 1, chosen so that no partial sum or product of up
// to 64 ranks leaves the type's range (64 * 2 in e4m3, whose largest number is 448). Integers are
// any bits.
void fill(const Inputs& inputs, uint32_t rank, uint64_t first, std::span<std::byte> out);

// Data::kExact and every order of adding `ranks` of these numbers gives the same, exact result.
bool sums_are_exact(const Inputs& inputs);

}  // namespace shunt::bench
