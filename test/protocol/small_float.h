// 16- and 8-bit floats by arithmetic on their definition: slow, and independent of the toolkit's
// headers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace sim {

struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // else the largest exponent holds numbers, and only all ones is NaN
  bool saturates;     // what is too large becomes the largest number, not an infinity
};

inline constexpr SmallFloat kHalf{5, 10, true, false};
inline constexpr SmallFloat kBfloat16{8, 7, true, false};
inline constexpr SmallFloat kFloat8e4m3{4, 3, false, true};
inline constexpr SmallFloat kFloat8e5m2{5, 2, true, true};

inline float decode(const SmallFloat& f, uint32_t bits) {
  const uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
  const int last = (1 << f.exponent_bits) - 1, bias = last >> 1;
  const bool negative = bits >> (f.mantissa_bits + f.exponent_bits) & 1;
  float value;
  if (exponent == last && f.has_infinity) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == last && mantissa == (1u << f.mantissa_bits) - 1) {
    value = NAN;
  } else {
    const float whole = static_cast<float>(mantissa + (exponent == 0 ? 0u : 1u << f.mantissa_bits));
    value = std::ldexp(whole, (exponent == 0 ? 1 : exponent) - bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

// Rounds to nearest, ties to even.
inline uint32_t encode(const SmallFloat& f, float value) {
  const int last = (1 << f.exponent_bits) - 1, bias = last >> 1;
  const uint32_t sign = std::signbit(value) ? 1u << (f.mantissa_bits + f.exponent_bits) : 0;
  const uint32_t infinity = static_cast<uint32_t>(last) << f.mantissa_bits;
  const uint32_t largest = f.has_infinity ? infinity - 1 : infinity + (1u << f.mantissa_bits) - 2;
  if (std::isnan(value)) return sign | (infinity + (1u << f.mantissa_bits) - 1);
  const float size = std::fabs(value);
  const uint32_t too_large = f.saturates ? largest : infinity;
  if (std::isinf(size)) return sign | too_large;
  if (size == 0) return sign;
  // The exponent at which one unit of the mantissa is 1; the same for all denormals.
  const int scale = std::max(std::ilogb(size), 1 - bias) - f.mantissa_bits;
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -scale)));
  const uint32_t hidden = 1u << f.mantissa_bits;
  const uint32_t exponent = static_cast<uint32_t>(scale + f.mantissa_bits + bias);
  // Rounding up to the next exponent carries by itself.
  const uint32_t bits = units < hidden ? units : (exponent << f.mantissa_bits) + units - hidden;
  return sign | (bits > largest ? too_large : bits);
}

}  // namespace sim
