// The reference itself: right results pass, every small fault is seen.
#include "tools/bench/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "test/catch.h"
#include "tools/bench/floats.h"

using namespace shunt;
using namespace shunt::bench;

namespace {

constexpr uint64_t kCount = 5000;  // more than one chunk, and no multiple of it

template <typename T>
std::vector<T> input_of(const Inputs& in, uint32_t rank) {
  std::vector<T> values(kCount);
  fill(in, rank, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// An all-reduce in the type itself, rank after rank.
template <typename T, typename Combine>
std::vector<T> reduced(const Inputs& in, Combine combine) {
  std::vector<T> result = input_of<T>(in, 0);
  for (uint32_t rank = 1; rank < in.ranks; ++rank) {
    const std::vector<T> other = input_of<T>(in, rank);
    for (uint64_t i = 0; i < kCount; ++i) result[i] = combine(result[i], other[i]);
  }
  return result;
}

template <typename T>
Comparison compared(const Inputs& in, const std::vector<T>& output,
                    Rounding rounding = Rounding::kEachHop) {
  return compare(in, rounding, std::as_bytes(std::span(output)));
}

Inputs inputs(DataType type, ReduceOp op, uint32_t ranks) {
  return {type, op, Data::kRandom, ranks, 7};
}

}  // namespace

TEST_CASE("integers wrap and average toward zero") {
  const Inputs sum = inputs(DataType::kInt8, ReduceOp::kSum, 3);
  auto output = reduced<int8_t>(sum, [](int8_t a, int8_t b) { return static_cast<int8_t>(a + b); });
  CHECK(compared(sum, output).wrong == 0);

  const Inputs avg = inputs(DataType::kInt8, ReduceOp::kAvg, 3);
  output = reduced<int8_t>(avg, [](int8_t a, int8_t b) { return static_cast<int8_t>(a + b); });
  for (int8_t& value : output) value = static_cast<int8_t>(value / 3);
  CHECK(compared(avg, output).wrong == 0);

  const Inputs max = inputs(DataType::kUint64, ReduceOp::kMax, 4);
  auto largest = reduced<uint64_t>(max, [](uint64_t a, uint64_t b) { return std::max(a, b); });
  CHECK(compared(max, largest).wrong == 0);
  largest[4999] ^= 1;
  const Comparison result = compared(max, largest);
  CHECK(result.wrong == 1);
  CHECK_THAT(result.first_wrong, ContainsSubstring("element 4999"));

  const Inputs prod = inputs(DataType::kInt32, ReduceOp::kProd, 4);
  CHECK(compared(prod, reduced<int32_t>(prod,
                                        [](int32_t a, int32_t b) {
                                          return static_cast<int32_t>(static_cast<uint32_t>(a) *
                                                                      static_cast<uint32_t>(b));
                                        }))
            .wrong == 0);
}

TEST_CASE("float sums: rounding at every step passes, one missing rank does not") {
  for (const uint32_t ranks : {2u, 3u, 8u, 16u}) {
    const Inputs in = inputs(DataType::kFloat32, ReduceOp::kSum, ranks);
    auto output = reduced<float>(in, std::plus<float>());
    const Comparison right = compared(in, output);
    CHECK(right.wrong == 0);
    CHECK(right.elements == kCount);
    CHECK(right.worst <= 1);
    CHECK(right.rms > 0);
    CHECK(right.rms < 1e-6);

    Inputs missing = in;
    missing.ranks = ranks - 1;
    output = reduced<float>(missing, std::plus<float>());
    CHECK(compared(in, output).wrong == kCount);
  }
}

TEST_CASE("double sums are checked more finely than double rounds") {
  const Inputs in = inputs(DataType::kFloat64, ReduceOp::kSum, 4);
  auto output = reduced<double>(in, std::plus<double>());
  CHECK(compared(in, output).wrong == 0);
  output[3] *= 1 + 1e-14;
  CHECK(compared(in, output).wrong == 1);
}

TEST_CASE("min and max must be exact, NaN and infinity are wrong") {
  const Inputs in = inputs(DataType::kFloat32, ReduceOp::kMin, 5);
  auto output = reduced<float>(in, [](float a, float b) { return std::min(a, b); });
  CHECK(compared(in, output).wrong == 0);
  output[0] = std::nextafter(output[0], 1e9f);
  output[1] = std::nanf("");
  output[2] = -INFINITY;
  CHECK(compared(in, output).wrong == 3);
}

TEST_CASE("products and averages") {
  const Inputs prod = inputs(DataType::kFloat32, ReduceOp::kProd, 8);
  CHECK(compared(prod, reduced<float>(prod, std::multiplies<float>())).wrong == 0);
  const Inputs avg = inputs(DataType::kFloat32, ReduceOp::kAvg, 3);
  auto output = reduced<float>(avg, std::plus<float>());
  for (float& value : output) value /= 3;
  CHECK(compared(avg, output, Rounding::kOnce).wrong == 0);
}

TEST_CASE("bf16: a sum rounded once passes both bounds, one rounded twice only the wider") {
  // Rounds to nearest, ties to even.
  const auto rounded = [](float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  };
  const auto value_of = [](uint16_t bits) {
    return static_cast<float>(decode(format_of(DataType::kBfloat16), bits));
  };
  const Inputs in = inputs(DataType::kBfloat16, ReduceOp::kSum, 8);
  std::vector<std::vector<uint16_t>> values;
  for (uint32_t rank = 0; rank < in.ranks; ++rank) values.push_back(input_of<uint16_t>(in, rank));
  std::vector<uint16_t> once(kCount), each_hop(kCount);
  for (uint64_t i = 0; i < kCount; ++i) {
    float sum = 0, hops = value_of(values[0][i]);
    for (const auto& rank : values) sum += value_of(rank[i]);
    for (uint32_t rank = 1; rank < in.ranks; ++rank) {
      hops = value_of(rounded(hops + value_of(values[rank][i])));
    }
    once[i] = rounded(sum);
    each_hop[i] = rounded(hops);
  }
  CHECK(compared(in, once, Rounding::kOnce).wrong == 0);
  CHECK(compared(in, once).wrong == 0);
  CHECK(compared(in, each_hop).wrong == 0);
  CHECK(compared(in, each_hop, Rounding::kOnce).wrong > 0);
  CHECK(compared(in, once).rms < compared(in, each_hop).rms);
}

TEST_CASE("bounds grow with ranks and shrink with precision") {
  const auto relative = [](DataType type, uint32_t ranks, Rounding rounding) {
    return bound_of(type, ReduceOp::kSum, ranks, rounding).relative;
  };
  const auto near = [](double a, double b) { return std::fabs(a - b) <= 1e-3 * b; };
  CHECK(near(relative(DataType::kBfloat16, 2, Rounding::kEachHop), std::ldexp(1, -8)));
  CHECK(near(relative(DataType::kFloat16, 3, Rounding::kEachHop), std::ldexp(1, -10)));
  CHECK(relative(DataType::kBfloat16, 8, Rounding::kEachHop) > 6 * std::ldexp(1, -8));
  CHECK(near(relative(DataType::kBfloat16, 8, Rounding::kOnce), std::ldexp(1, -8)));
  CHECK(relative(DataType::kFloat32, 8, Rounding::kOnce) ==
        relative(DataType::kFloat32, 8, Rounding::kEachHop));
}

TEST_CASE("hashes see every byte and its place") {
  std::vector<std::byte> bytes(19, std::byte{1});
  const uint64_t hash = hash_of(bytes);
  for (std::byte& b : bytes) {
    b = std::byte{2};
    CHECK(hash_of(bytes) != hash);
    b = std::byte{1};
  }
  CHECK(hash_of(bytes) == hash);
  CHECK(hash_of(std::span(bytes).first(18)) != hash);
}
