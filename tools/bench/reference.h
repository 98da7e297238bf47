// What an all-reduce must give, and how far a float result may be from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tools/bench/inputs.h"

namespace shunt::bench {

// How a float sum was made. kEachHop: every partial result is rounded to the type (NCCL). kOnce:
// added in fp32 (fp64 for fp64) and rounded once (a shunted call).
enum class Rounding : uint32_t { kEachHop, kOnce };

// |result - exact| <= relative * scale + absolute, where scale is the sum of the magnitudes (sum),
// that over ranks (avg) or the magnitude of the exact result (prod). Higham, "Accuracy and
// Stability of Numerical Algorithms", 4.2: (1+u)^(n-1) - 1 for n terms in any order; one more
// factor for each further rounding; half the smallest number for each rounding that may underflow.
struct Bound {
  double relative = 0;
  double absolute = 0;
};
// Of a float type and one of sum, prod, avg; min and max are exact.
Bound bound_of(DataType type, ReduceOp op, uint32_t ranks, Rounding rounding);

struct Comparison {
  uint64_t elements = 0;
  uint64_t wrong = 0;
  std::string first_wrong;  // "element 17 is 3.5, must be 2.25 within 0.01"; empty if none
  double worst = 0;  // the largest error in units of its bound (floats; wrong ones counted in)
  double rms = 0;    // root of (sum of squared errors / sum of squared results)
};

// `output` holds whole elements, in host memory. Integers, min, max and exact data must match
// exactly.
Comparison compare(const Inputs& inputs, Rounding rounding, std::span<const std::byte> output);

// A hash of all bytes, to compare outputs across ranks.
uint64_t hash_of(std::span<const std::byte> bytes);

}  // namespace shunt::bench
