#include "shim/engine/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace shunt {
namespace {

struct Format {
  int exponent_bits;
  int mantissa_bits;  // stored ones
  bool infinities;    // false: e4m3, where only all ones is special

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double unit_roundoff() const { return std::ldexp(1.0, -mantissa_bits - 1); }
  double smallest() const { return std::ldexp(1.0, 1 - bias() - mantissa_bits); }
  double smallest_normal() const { return std::ldexp(1.0, 1 - bias()); }
  double largest() const {
    return infinities ? std::ldexp(2 - 2 * unit_roundoff(), bias()) : std::ldexp(1.75, bias() + 1);
  }
};

Format format_of(DataType type) {
  switch (type) {
    case DataType::kFloat16: return {5, 10, true};
    case DataType::kBfloat16: return {8, 7, true};
    case DataType::kFloat64: return {11, 52, true};
    case DataType::kFloat8e4m3: return {4, 3, false};
    case DataType::kFloat8e5m2: return {5, 2, true};
    default: return {8, 23, true};
  }
}

double decode(uint64_t bits, const Format& format) {
  const uint64_t all = (uint64_t{1} << format.exponent_bits) - 1;
  const uint64_t mantissa = bits & ((uint64_t{1} << format.mantissa_bits) - 1);
  const uint64_t exponent = bits >> format.mantissa_bits & all;
  const bool negative = (bits >> (format.mantissa_bits + format.exponent_bits) & 1) != 0;
  double value;
  if (exponent == all && format.infinities) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == all && mantissa == (uint64_t{1} << format.mantissa_bits) - 1) {
    value = NAN;
  } else {
    const uint64_t whole = mantissa | (exponent == 0 ? 0 : uint64_t{1} << format.mantissa_bits);
    value = std::ldexp(static_cast<double>(whole),
                       static_cast<int>(std::max<uint64_t>(exponent, 1)) - format.bias() -
                           format.mantissa_bits);
  }
  return negative ? -value : value;
}

template <typename T>
double as_double(uint64_t bits) {
  return static_cast<double>(static_cast<T>(bits));
}

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// `size`: what was added in absolute values, or for products the sum of the logarithms' absolute values.
bool within_rounding(double ours, double exact, double size, const Format& format, ReduceOp op,
                     uint32_t ranks) {
  // Sums are made in fp32, those of fp64 in fp64: there the reference is no better than the result.
  const bool doubles = format.mantissa_bits == 52;
  const double step = ranks * (doubles ? 4 * 0x1p-53 : 0x1p-24);
  const bool product = op == ReduceOp::kProd;
  if (std::isnan(exact)) return std::isnan(ours) || std::isinf(size);
  if (product) {
    // No step on the way may have left fp32's (fp64's) range, nor the result the type's.
    const double room = doubles ? 1000 : 120;
    if (!(size < room) || std::abs(exact) < 2 * format.smallest_normal()) return true;
  } else if (!(size <= format.largest() / 2)) {
    return true;
  }
  if (std::abs(exact) > format.largest() / 2) return true;
  const double scale = product ? std::abs(exact) : op == ReduceOp::kAvg ? size / ranks : size;
  const double allowed = format.unit_roundoff() * std::abs(exact) + format.smallest() + step * scale;
  return std::abs(ours - exact) <= allowed * 1.01;
}

}  // namespace

uint64_t bits_at(const unsigned char* elements, size_t at, DataType type) {
  uint64_t bits = 0;  // little-endian, as every GPU's host is
  std::memcpy(&bits, elements + at * size_of(type), size_of(type));
  return bits;
}

double value_at(const unsigned char* elements, size_t at, DataType type) {
  const uint64_t bits = bits_at(elements, at, type);
  switch (type) {
    case DataType::kInt8: return as_double<int8_t>(bits);
    case DataType::kInt32: return as_double<int32_t>(bits);
    case DataType::kInt64: return as_double<int64_t>(bits);
    case DataType::kUint8:
    case DataType::kUint32:
    case DataType::kUint64: return as_double<uint64_t>(bits);
    default: return decode(bits, format_of(type));
  }
}

Wrong differing(const unsigned char* ours, const unsigned char* theirs, size_t count, DataType type,
                ReduceOp op, uint32_t ranks) {
  Wrong wrong;
  if (std::memcmp(ours, theirs, count * size_of(type)) == 0) return wrong;
  const double step = is_float(type) ? 2 * ranks * format_of(type).unit_roundoff() : 0;
  for (size_t i = 0; i < count; ++i) {
    if (bits_at(ours, i, type) == bits_at(theirs, i, type)) continue;
    if (is_float(type)) {
      const double a = value_at(ours, i, type), b = value_at(theirs, i, type);
      if (same_number(a, b)) continue;
      // A first sieve only: what passes here is small beside the result, so it is rounding.
      if (rounds(type, op) && std::abs(a - b) <= step * std::min(std::abs(a), std::abs(b))) continue;
    }
    wrong.add(i);
  }
  return wrong;
}

Share share_of(double input, ReduceOp op) {
  if (op != ReduceOp::kProd) return {input, std::abs(input)};
  return {input, std::abs(std::log2(std::abs(input)))};  // of zero: infinite, so nothing is judged
}

Wrong beyond_rounding(const unsigned char* ours, size_t first, std::span<const double> values,
                      std::span<const double> sizes, DataType type, ReduceOp op, uint32_t ranks) {
  Wrong wrong;
  const Format format = format_of(type);
  const double divisor = op == ReduceOp::kAvg ? ranks : 1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!within_rounding(value_at(ours, first + i, type), values[i] / divisor, sizes[i], format, op,
                         ranks)) {
      wrong.add(first + i);
    }
  }
  return wrong;
}

}  // namespace shunt
