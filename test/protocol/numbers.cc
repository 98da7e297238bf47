#include "test/protocol/numbers.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "test/protocol/small_float.h"

namespace sim {

using shunt::DataType;
using shunt::ReduceOp;

namespace {

const SmallFloat* small_float_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return &kHalf;
    case DataType::kBfloat16:
      return &kBfloat16;
    case DataType::kFloat8e4m3:
      return &kFloat8e4m3;
    case DataType::kFloat8e5m2:
      return &kFloat8e5m2;
    default:
      return nullptr;
  }
}

uint64_t load_bits(const unsigned char* from, uint32_t size) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, size);
  return bits;
}

template <typename A>
A combine_floats(ReduceOp op, A a, A b) {
  switch (op) {
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMax:
      return std::isnan(a) ? b : std::isnan(b) ? a : a < b ? b : a;
    case ReduceOp::kMin:
      return std::isnan(a) ? b : std::isnan(b) ? a : b < a ? b : a;
    default:
      return a + b;
  }
}

int64_t sign_extend(uint64_t bits, uint32_t size) {
  const uint32_t shift = 64 - 8 * size;
  return static_cast<int64_t>(bits << shift) >> shift;
}

// Every integer type in 64 bits; what does not fit its width is cut off at the end.
uint64_t combine_integers(ReduceOp op, bool is_signed, uint32_t size, uint64_t a, uint64_t b) {
  const bool less = is_signed ? sign_extend(a, size) < sign_extend(b, size) : a < b;
  switch (op) {
    case ReduceOp::kProd:
      return a * b;
    case ReduceOp::kMax:
      return less ? b : a;
    case ReduceOp::kMin:
      return less ? a : b;
    default:
      return a + b;
  }
}

uint64_t reduce_integers(DataType type, ReduceOp op, const std::vector<Bytes>& inputs, size_t at) {
  const uint32_t size = size_of(type);
  const bool is_signed =
      type == DataType::kInt8 || type == DataType::kInt32 || type == DataType::kInt64;
  const uint64_t mask = size == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * size) - 1;
  uint64_t sum = load_bits(&inputs[0][at], size);
  for (size_t r = 1; r < inputs.size(); ++r) {
    sum = combine_integers(op, is_signed, size, sum, load_bits(&inputs[r][at], size)) & mask;
  }
  if (op != ReduceOp::kAvg) return sum;
  if (!is_signed) return sum / inputs.size();
  return static_cast<uint64_t>(sign_extend(sum, size) / static_cast<int64_t>(inputs.size()));
}

template <typename A, typename Load>
A reduce_floats(ReduceOp op, size_t ranks, Load load) {
  A sum = load(0);
  for (size_t r = 1; r < ranks; ++r) sum = combine_floats(op, sum, load(r));
  return op == ReduceOp::kAvg ? sum / static_cast<A>(ranks) : sum;
}

uint64_t odd_bits(DataType type, Rng& rng) {
  const uint32_t bits = 8 * size_of(type);
  const uint64_t sign = uint64_t{1} << (bits - 1);
  switch (rng.below(6)) {
    case 0:
      return ~uint64_t{0};  // the word that reads as "not here yet"
    case 1:
      return sign - 1;  // the same without the top bit
    case 2:
      return sign;  // -0, or the smallest integer
    case 3:
      return 1;  // denormal
    case 4:
      return rng.next();  // anything: NaN payloads, infinities
    default: {
      if (type == DataType::kFloat32) return std::bit_cast<uint32_t>(INFINITY);
      if (type == DataType::kFloat64) return std::bit_cast<uint64_t>(double{-INFINITY});
      const SmallFloat* small = small_float_of(type);
      return small != nullptr ? encode(*small, -INFINITY) : 0;
    }
  }
}

uint64_t ordinary_bits(DataType type, Rng& rng) {
  const double value = (static_cast<double>(rng.next() >> 11) / (uint64_t{1} << 52) - 1) * 8;
  if (type == DataType::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == DataType::kFloat64) return std::bit_cast<uint64_t>(value);
  const SmallFloat* small = small_float_of(type);
  return small != nullptr ? encode(*small, static_cast<float>(value)) : rng.next();
}

}  // namespace

Bytes make_input(DataType type, uint64_t count, bool odd, Rng& rng) {
  const uint32_t size = size_of(type);
  Bytes bytes(count * size);
  // Runs of odd elements, so that whole words of narrow types are all ones too.
  uint64_t run = 0, repeated = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (odd && run == 0 && rng.of256(40)) {
      run = 1 + rng.below(8);
      repeated = odd_bits(type, rng);
    }
    const uint64_t bits = run != 0 ? repeated : ordinary_bits(type, rng);
    if (run != 0) --run;
    std::memcpy(&bytes[i * size], &bits, size);
  }
  return bytes;
}

Bytes reduce(DataType type, ReduceOp op, uint64_t count, const std::vector<Bytes>& inputs) {
  const uint32_t size = size_of(type);
  const SmallFloat* small = small_float_of(type);
  Bytes result(count * size);
  for (size_t at = 0; at < result.size(); at += size) {
    uint64_t bits;
    if (!is_float(type)) {
      bits = reduce_integers(type, op, inputs, at);
    } else if (type == DataType::kFloat64) {
      bits = std::bit_cast<uint64_t>(reduce_floats<double>(op, inputs.size(), [&](size_t r) {
        return std::bit_cast<double>(load_bits(&inputs[r][at], 8));
      }));
    } else {
      const float sum = reduce_floats<float>(op, inputs.size(), [&](size_t r) {
        const auto word = static_cast<uint32_t>(load_bits(&inputs[r][at], size));
        return small != nullptr ? decode(*small, word) : std::bit_cast<float>(word);
      });
      bits = small != nullptr ? encode(*small, sum) : std::bit_cast<uint32_t>(sum);
    }
    std::memcpy(&result[at], &bits, size);
  }
  return result;
}

bool same_element(DataType type, ReduceOp op, const unsigned char* a, const unsigned char* b) {
  const uint32_t size = size_of(type);
  if (std::memcmp(a, b, size) == 0) return true;
  if (!is_float(type)) return false;
  const SmallFloat* small = small_float_of(type);
  const auto value = [&](const unsigned char* p) -> double {
    const uint64_t bits = load_bits(p, size);
    if (type == DataType::kFloat64) return std::bit_cast<double>(bits);
    const auto word = static_cast<uint32_t>(bits);
    return small != nullptr ? decode(*small, word) : std::bit_cast<float>(word);
  };
  const double x = value(a), y = value(b);
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  return (op == ReduceOp::kMin || op == ReduceOp::kMax) && x == 0 && y == 0;
}

}  // namespace sim
