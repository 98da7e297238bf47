#include "tools/bench/floats.h"

#include <cassert>
#include <cmath>
#include <limits>

namespace shunt::bench {

double FloatFormat::unit_roundoff() const { return std::ldexp(1.0, -mantissa_bits - 1); }

double FloatFormat::smallest() const { return std::ldexp(1.0, 1 - bias - mantissa_bits); }

double FloatFormat::largest() const {
  const int top_exponent = (1 << exponent_bits()) - 1 - bias;
  if (!infinities) return std::ldexp(2.0 - 4 * unit_roundoff(), top_exponent);
  return std::ldexp(2.0 - 2 * unit_roundoff(), top_exponent - 1);
}

double decode(const FloatFormat& format, uint64_t bits) {
  const uint64_t mantissa_mask = (uint64_t{1} << format.mantissa_bits) - 1;
  const int exponent_mask = (1 << format.exponent_bits()) - 1;
  const uint64_t mantissa = bits & mantissa_mask;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits) & exponent_mask;
  const double sign = (bits >> (format.bits - 1)) & 1 ? -1.0 : 1.0;

  if (exponent == exponent_mask) {
    if (format.infinities) {
      return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
    }
    if (mantissa == mantissa_mask) return std::numeric_limits<double>::quiet_NaN();
  }
  const uint64_t hidden = exponent == 0 ? 0 : uint64_t{1} << format.mantissa_bits;
  const int power = (exponent == 0 ? 1 : exponent) - format.bias - format.mantissa_bits;
  return sign * std::ldexp(static_cast<double>(mantissa | hidden), power);
}

uint64_t encode_exact(const FloatFormat& format, double value) {
  const uint64_t sign = std::signbit(value) ? uint64_t{1} << (format.bits - 1) : 0;
  if (value == 0) return sign;
  int power = 0;
  const double fraction = std::frexp(std::fabs(value), &power);  // in [0.5, 1)
  const auto significand = static_cast<uint64_t>(std::ldexp(fraction, format.mantissa_bits + 1));
  const auto exponent = static_cast<uint64_t>(power - 1 + format.bias);
  const uint64_t bits = sign | (exponent << format.mantissa_bits) |
                        (significand & ((uint64_t{1} << format.mantissa_bits) - 1));
  assert(decode(format, bits) == value);
  return bits;
}

}  // namespace shunt::bench
