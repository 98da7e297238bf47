#include "tools/bench/inputs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "tools/bench/floats.h"

namespace shunt::bench {
namespace {

// The finalizer of splitmix64: well mixed bits from a counter.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Integers up to this are exact in a format with p significant bits.
uint64_t exact_limit(const FloatFormat& format) {
  return uint64_t{1} << (format.mantissa_bits + 1);
}

// The largest magnitude of Data::kExact inputs, at most 64 so that they stay few.
uint64_t exact_magnitude(const Inputs& inputs) {
  const uint64_t limit = exact_limit(format_of(inputs.type)) / inputs.ranks;
  return std::clamp<uint64_t>(limit, 1, 64);
}

class FloatSource {
 public:
  FloatSource(const Inputs& inputs, uint32_t rank)
      : format_(format_of(inputs.type)), exact_(inputs.data == Data::kExact) {
    const bool product = inputs.op == ReduceOp::kProd;
    if (exact_) {
      magnitude_ = product ? 1 : exact_magnitude(inputs);
      for (uint64_t i = 0; i < 2 * magnitude_ + 1; ++i) {
        double value = static_cast<double>(i) - static_cast<double>(magnitude_);
        if (product && value == 0) value = 2;  // at most 2^ranks
        table_[i] = encode_exact(format_, value);
      }
      return;
    }
    // Products: the ranks in turn give numbers in [1, 2) and [0.5, 1), so partial products stay
    // near 1. 8-bit types: [0.25, 2) keeps 64 of them under 448. Others: [1/16, 16).
    lowest_exponent_ = product ? -static_cast<int>(rank % 2) : format_.bits == 8 ? -2 : -4;
    exponents_ = product ? 1 : format_.bits == 8 ? 3 : 8;
  }

  uint64_t operator()(uint64_t random) const {
    // Multiply and shift, not %: a division an element would be most of the time of a check.
    if (exact_) return table_[((random >> 32) * (2 * magnitude_ + 1)) >> 32];
    const uint64_t mantissa = random & ((uint64_t{1} << format_.mantissa_bits) - 1);
    const auto offset = static_cast<int>((((random >> 52) & 0x7ff) * exponents_) >> 11);
    const auto exponent = static_cast<uint64_t>(format_.bias + lowest_exponent_ + offset);
    return (random >> 63) << (format_.bits - 1) | exponent << format_.mantissa_bits | mantissa;
  }

 private:
  FloatFormat format_;
  bool exact_;
  uint64_t magnitude_ = 0;
  std::array<uint64_t, 2 * 64 + 1> table_{};
  int lowest_exponent_ = 0;
  uint64_t exponents_ = 1;
};

template <typename Source>
void fill_elements(uint64_t key, uint64_t first, uint32_t size, std::span<std::byte> out,
                   const Source& source) {
  static_assert(std::endian::native == std::endian::little);  // the low bytes come first
  for (size_t at = 0; at + size <= out.size(); at += size) {
    const uint64_t bits = source(mix(key + first++));
    std::memcpy(out.data() + at, &bits, size);
  }
}

}  // namespace

Inputs inputs_of(const Options& options, const Case& c, uint32_t iteration) {
  uint64_t seed = mix(options.seed);
  for (const uint64_t part :
       {c.count, static_cast<uint64_t>(c.type), static_cast<uint64_t>(c.op),
        static_cast<uint64_t>(c.mode), static_cast<uint64_t>(c.place), uint64_t{iteration}}) {
    seed = mix(seed ^ part);
  }
  return {c.type, c.op, options.data, options.ranks, seed};
}

void fill(const Inputs& inputs, uint32_t rank, uint64_t first, std::span<std::byte> out) {
  const uint64_t key = mix(inputs.seed ^ mix(rank));
  const uint32_t size = size_of(inputs.type);
  if (is_float(inputs.type)) {
    fill_elements(key, first, size, out, FloatSource(inputs, rank));
  } else {
    fill_elements(key, first, size, out, [](uint64_t random) { return random; });
  }
}

bool sums_are_exact(const Inputs& inputs) {
  if (inputs.data != Data::kExact || !is_float(inputs.type)) return false;
  const uint64_t limit = exact_limit(format_of(inputs.type));
  switch (inputs.op) {
    case ReduceOp::kSum:
      return exact_magnitude(inputs) * inputs.ranks <= limit;
    case ReduceOp::kProd:  // powers of two
      return inputs.ranks < 8 || inputs.type != DataType::kFloat8e4m3;
    case ReduceOp::kAvg:  // NCCL scales first, by a power of two then; nothing comes near
                          // subnormals
      return exact_magnitude(inputs) * inputs.ranks <= limit && std::has_single_bit(inputs.ranks) &&
             inputs.ranks <= 16;
    default:
      return true;
  }
}

}  // namespace shunt::bench
