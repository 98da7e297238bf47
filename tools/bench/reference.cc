#include "tools/bench/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "tools/bench/floats.h"

namespace shunt::bench {
namespace {

constexpr uint64_t kChunk = 4096;  // elements: the inputs of a chunk stay in the cache

std::string differs(uint64_t element, double got, double expected, double tolerance) {
  char text[120];
  std::snprintf(text, sizeof text, "element %llu is %.9g, must be %.9g within %.3g",
                static_cast<unsigned long long>(element), got, expected, tolerance);
  return text;
}

// Integers: C++ conversions to the type wrap, as the GPU's do.
template <typename T>
class IntegerReference {
 public:
  explicit IntegerReference(const Inputs& inputs) : inputs_(inputs) {}

  void check(uint64_t first, std::span<const std::byte> chunk, Comparison& result) {
    const size_t count = chunk.size() / sizeof(T);
    std::vector<T> expected(count), input(count);
    for (uint32_t rank = 0; rank < inputs_.ranks; ++rank) {
      fill(inputs_, rank, first, std::as_writable_bytes(std::span(input)));
      if (rank == 0) expected = input;
      for (size_t i = 0; i < count && rank > 0; ++i) expected[i] = combine(expected[i], input[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (inputs_.op == ReduceOp::kAvg) expected[i] = divided(expected[i]);
      T got;
      std::memcpy(&got, chunk.data() + i * sizeof(T), sizeof got);
      if (got == expected[i]) continue;
      if (result.wrong++ == 0) {
        result.first_wrong = "element " + std::to_string(first + i) + " is " + std::to_string(got) +
                             ", must be " + std::to_string(expected[i]);
      }
    }
  }

 private:
  T combine(T a, T b) const {
    using Wide = uint64_t;  // unsigned: signed overflow would be undefined
    switch (inputs_.op) {
      case ReduceOp::kProd:
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
      case ReduceOp::kMax:
        return std::max(a, b);
      case ReduceOp::kMin:
        return std::min(a, b);
      default:
        return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    }
  }

  // Toward zero, after the sum has wrapped: what NCCL does.
  T divided(T sum) const {
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(static_cast<int64_t>(sum) / static_cast<int64_t>(inputs_.ranks));
    } else {
      return static_cast<T>(sum / inputs_.ranks);
    }
  }

  const Inputs& inputs_;
};

// Floats. Real is double, and long double for fp64, where double itself rounds.
template <typename Real>
class FloatReference {
 public:
  FloatReference(const Inputs& inputs, Rounding rounding)
      : inputs_(inputs),
        format_(format_of(inputs.type)),
        exact_(inputs.op == ReduceOp::kMin || inputs.op == ReduceOp::kMax ||
               sums_are_exact(inputs)) {
    if (!exact_) bound_ = bound_of(inputs.type, inputs.op, inputs.ranks, rounding);
    if (format_.bits > 16) return;
    table_.resize(size_t{1} << format_.bits);
    for (size_t bits = 0; bits < table_.size(); ++bits) table_[bits] = decode(format_, bits);
  }

  void check(uint64_t first, std::span<const std::byte> chunk, Comparison& result) {
    const size_t count = chunk.size() / size_of(inputs_.type);
    std::vector<std::byte> input(chunk.size());
    std::vector<Real> exact(count), magnitude(count);
    for (uint32_t rank = 0; rank < inputs_.ranks; ++rank) {
      fill(inputs_, rank, first, input);
      for (size_t i = 0; i < count; ++i) add(rank == 0, load(input, i), exact[i], magnitude[i]);
    }
    for (size_t i = 0; i < count; ++i) {
      if (inputs_.op == ReduceOp::kAvg) {
        exact[i] /= static_cast<Real>(inputs_.ranks);
        magnitude[i] /= static_cast<Real>(inputs_.ranks);
      }
      judge(first + i, load(chunk, i), exact[i], magnitude[i], result);
    }
  }

  void finish(Comparison& result) const {
    if (squares_ > 0) result.rms = std::sqrt(squared_errors_ / squares_);
  }

 private:
  Real load(std::span<const std::byte> bytes, size_t i) const {
    const std::byte* at = bytes.data() + i * static_cast<size_t>(format_.bits) / 8;
    if (format_.bits == 8) return table_[static_cast<uint8_t>(*at)];
    if (format_.bits == 16) {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof bits);
      return table_[bits];
    }
    if (format_.bits == 32) {
      float value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    double value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }

  void add(bool is_first, Real value, Real& exact, Real& magnitude) const {
    if (is_first) {
      exact = value;
      magnitude = std::fabs(value);
      return;
    }
    switch (inputs_.op) {
      case ReduceOp::kProd:
        exact *= value;
        magnitude = std::fabs(exact);
        break;
      case ReduceOp::kMax:
        exact = std::max(exact, value);
        break;
      case ReduceOp::kMin:
        exact = std::min(exact, value);
        break;
      default:
        exact += value;
        magnitude += std::fabs(value);
    }
  }

  void judge(uint64_t element, Real got, Real exact, Real magnitude, Comparison& result) {
    const Real error = std::fabs(got - exact);
    const Real tolerance = exact_ ? Real{0}
                                  : static_cast<Real>(bound_.relative) * magnitude +
                                        static_cast<Real>(bound_.absolute);
    // Written so that NaN is wrong.
    if (!(error <= tolerance) && result.wrong++ == 0) {
      result.first_wrong = differs(element, static_cast<double>(got), static_cast<double>(exact),
                                   static_cast<double>(tolerance));
    }
    squared_errors_ += static_cast<double>(error * error);
    squares_ += static_cast<double>(exact * exact);
    if (tolerance > 0 && std::isfinite(error)) {
      result.worst = std::max(result.worst, static_cast<double>(error / tolerance));
    }
  }

  const Inputs& inputs_;
  const FloatFormat format_;
  const bool exact_;
  Bound bound_;
  std::vector<double> table_;  // of all values of an 8- or 16-bit type
  double squared_errors_ = 0;
  double squares_ = 0;
};

template <typename Reference>
void check_chunks(Reference& reference, uint32_t size, std::span<const std::byte> output,
                  Comparison& result) {
  result.elements = output.size() / size;
  for (uint64_t first = 0; first < result.elements; first += kChunk) {
    const uint64_t count = std::min(kChunk, result.elements - first);
    reference.check(first, output.subspan(first * size, count * size), result);
  }
}

}  // namespace

Bound bound_of(DataType type, ReduceOp op, uint32_t ranks, Rounding rounding) {
  const FloatFormat format = format_of(type);
  const double u = format.unit_roundoff();
  // NCCL's average multiplies every input by a rounded 1/n first: two roundings more.
  const uint32_t roundings = ranks - 1 + (op == ReduceOp::kAvg ? 2 : 0);
  const auto grown = [](double unit, uint32_t times) {
    return std::expm1(times * std::log1p(unit));  // (1 + unit)^times - 1
  };
  // An underflow early in a product is magnified by what follows: at most 16 (see inputs.h).
  const double underflow = format.smallest() / 2 * (op == ReduceOp::kProd ? 16 : 1);
  const double accumulator =
      type == DataType::kFloat64 ? u : format_of(DataType::kFloat32).unit_roundoff();
  if (rounding == Rounding::kOnce && accumulator < u) {
    const double before = grown(accumulator, roundings);
    return {before + u * (1 + before), format.smallest() / 2};
  }
  return {grown(u, roundings), underflow * (roundings + 1)};
}

Comparison compare(const Inputs& inputs, Rounding rounding, std::span<const std::byte> output) {
  Comparison result;
  const uint32_t size = size_of(inputs.type);
  const auto floats = [&]<typename Real>(Real) {
    FloatReference<Real> reference(inputs, rounding);
    check_chunks(reference, size, output, result);
    reference.finish(result);
  };
  const auto integers = [&]<typename T>(T) {
    IntegerReference<T> reference(inputs);
    check_chunks(reference, size, output, result);
  };
  switch (inputs.type) {
    case DataType::kInt8:
      integers(int8_t{});
      break;
    case DataType::kUint8:
      integers(uint8_t{});
      break;
    case DataType::kInt32:
      integers(int32_t{});
      break;
    case DataType::kUint32:
      integers(uint32_t{});
      break;
    case DataType::kInt64:
      integers(int64_t{});
      break;
    case DataType::kUint64:
      integers(uint64_t{});
      break;
    case DataType::kFloat64:
      floats(static_cast<long double>(0));
      break;
    default:
      floats(double{});
  }
  return result;
}

uint64_t hash_of(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325 ^ bytes.size();
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  for (; at < bytes.size(); ++at) {
    hash = (hash ^ static_cast<uint8_t>(bytes[at])) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace shunt::bench
