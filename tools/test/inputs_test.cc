#include "tools/bench/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "test/catch.h"
#include "tools/bench/floats.h"

using namespace shunt;
using namespace shunt::bench;

namespace {

Inputs inputs(DataType type, ReduceOp op, Data data, uint32_t ranks) {
  return {type, op, data, ranks, 42};
}

std::vector<std::byte> make(const Inputs& in, uint32_t rank, uint64_t first, uint64_t count) {
  std::vector<std::byte> bytes(count * size_of(in.type));
  fill(in, rank, first, bytes);
  return bytes;
}

double element(DataType type, const std::vector<std::byte>& bytes, size_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data() + i * size_of(type), size_of(type));
  return decode(format_of(type), bits);
}

}  // namespace

TEST_CASE("inputs are the same whatever part is made, and differ between ranks and iterations") {
  for (uint32_t i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    const Inputs in = inputs(type, ReduceOp::kSum, Data::kRandom, 4);
    const auto whole = make(in, 1, 0, 1000);
    const auto part = make(in, 1, 300, 100);
    CAPTURE(name_of(type));
    CHECK(std::memcmp(part.data(), whole.data() + 300 * size_of(type), part.size()) == 0);
    CHECK(make(in, 2, 0, 1000) != whole);
  }
  const Options o;
  const Case c{Mode::kEager, 8, DataType::kInt32, ReduceOp::kSum, Place::kInPlace};
  CHECK(inputs_of(o, c, 0).seed != inputs_of(o, c, 1).seed);
}

TEST_CASE("no partial result of 64 ranks leaves a type's range, and inputs are normal numbers") {
  for (uint32_t i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (!is_float(type)) continue;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd}) {
      double largest = 0, smallest = 1e9, mean = 0;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const auto bytes = make(inputs(type, op, Data::kRandom, 64), rank, 0, 4000);
        for (size_t e = 0; e < 4000; ++e) {
          const double value = element(type, bytes, e);
          largest = std::max(largest, std::fabs(value));
          smallest = std::min(smallest, std::fabs(value));
          mean += value / 8000;
        }
      }
      CAPTURE(name_of(type), name_of(op));
      CHECK(64 * largest <= format_of(type).largest());
      CHECK(smallest > 32 * format_of(type).smallest() / 32);
      CHECK(std::fabs(mean) < 0.3);
      CHECK(largest > smallest);
    }
  }
}

TEST_CASE("exact inputs have exact sums") {
  for (uint32_t i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (!is_float(type)) continue;
    for (const uint32_t ranks : {2u, 4u, 8u}) {
      const Inputs in = inputs(type, ReduceOp::kSum, Data::kExact, ranks);
      REQUIRE(sums_are_exact(in));
      const double limit = std::ldexp(1.0, format_of(type).mantissa_bits + 1);
      std::vector<double> magnitude(500);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        const auto bytes = make(in, rank, 0, magnitude.size());
        for (size_t e = 0; e < magnitude.size(); ++e) {
          const double value = element(type, bytes, e);
          CHECK(value == std::floor(value));
          magnitude[e] += std::fabs(value);
        }
      }
      for (const double sum : magnitude) CHECK(sum <= limit);
    }
  }
  CHECK_FALSE(sums_are_exact(inputs(DataType::kFloat32, ReduceOp::kSum, Data::kRandom, 2)));
  CHECK_FALSE(sums_are_exact(inputs(DataType::kFloat32, ReduceOp::kAvg, Data::kExact, 3)));
}
