// The float formats of NCCL by their layout, independent of the toolkit's and the kernels'
// conversions, so that a fault there cannot hide itself here. (The unit test compares with the
// toolkit's.)
#pragma once

#include <cstdint>

#include "kernels/datatype.h"

namespace shunt::bench {

struct FloatFormat {
  int bits;
  int mantissa_bits;  // stored ones; one more is significant
  int bias;
  bool infinities;  // false: e4m3, where only the all-ones pattern is special

  constexpr int exponent_bits() const { return bits - 1 - mantissa_bits; }
  double unit_roundoff() const;  // half the distance from 1 to the next number
  double smallest() const;       // the smallest subnormal number
  double largest() const;        // the largest finite number
};

// `type` must be a float type.
constexpr FloatFormat format_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {16, 10, 15, true};
    case DataType::kBfloat16:
      return {16, 7, 127, true};
    case DataType::kFloat64:
      return {64, 52, 1023, true};
    case DataType::kFloat8e4m3:
      return {8, 3, 7, false};
    case DataType::kFloat8e5m2:
      return {8, 2, 15, true};
    default:
      return {32, 23, 127, true};
  }
}

double decode(const FloatFormat& format, uint64_t bits);
// The number must be zero or a normal number of the format (asserted).
uint64_t encode_exact(const FloatFormat& format, double value);

}  // namespace shunt::bench
