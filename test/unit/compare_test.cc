// What SHUNT_VERIFY takes for rounding and what for an error.
#include "shim/engine/compare.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "test/catch.h"
#include "test/protocol/small_float.h"

namespace shunt {
namespace {

template <typename T>
std::vector<unsigned char> array(const std::vector<T>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
size_t differs(T ours, T theirs, DataType type, ReduceOp op = ReduceOp::kSum) {
  return differing(array<T>({ours}).data(), array<T>({theirs}).data(), 1, type, op, 4).count;
}

// Whether `ours` passes for the result of these inputs.
template <typename T>
bool passes(T ours, const std::vector<double>& inputs, DataType type, ReduceOp op = ReduceOp::kSum) {
  double value = op == ReduceOp::kProd ? 1 : 0, size = 0;
  for (const double input : inputs) {
    const Share share = share_of(input, op);
    value = op == ReduceOp::kProd ? value * share.value : value + share.value;
    size += share.size;
  }
  return beyond_rounding(array<T>({ours}).data(), 0, {&value, 1}, {&size, 1}, type, op,
                         static_cast<uint32_t>(inputs.size()))
             .count == 0;
}

TEST_CASE("every value of the small floats is read as its definition says") {
  const struct {
    DataType type;
    sim::SmallFloat format;
    uint32_t patterns;
  } all[] = {{DataType::kFloat16, sim::kHalf, 1u << 16},
             {DataType::kBfloat16, sim::kBfloat16, 1u << 16},
             {DataType::kFloat8e4m3, sim::kFloat8e4m3, 1u << 8},
             {DataType::kFloat8e5m2, sim::kFloat8e5m2, 1u << 8}};
  for (const auto& one : all) {
    size_t wrong = 0;
    for (uint32_t bits = 0; bits < one.patterns; ++bits) {
      const double want = sim::decode(one.format, bits);
      const double got = value_at(reinterpret_cast<const unsigned char*>(&bits), 0, one.type);
      wrong += !(got == want || (std::isnan(got) && std::isnan(want)));
    }
    CHECK(wrong == 0);
  }
  for (const float value : {0.f, -0.f, 1.5f, -3e38f, 1e-45f, INFINITY, NAN}) {
    const double got = value_at(array<float>({value}).data(), 0, DataType::kFloat32);
    CHECK((got == value || (std::isnan(got) && std::isnan(value))));
  }
  for (const double value : {5e-324, -1.7976931348623157e308, 0.1}) {
    CHECK(value_at(array<double>({value}).data(), 0, DataType::kFloat64) == value);
  }
  CHECK(value_at(array<int8_t>({0, -3}).data(), 1, DataType::kInt8) == -3);
  CHECK(value_at(array<uint64_t>({~uint64_t{0}}).data(), 0, DataType::kUint64) == 0x1p64);
}

TEST_CASE("integers, minima and maxima must be equal") {
  CHECK(differs<uint32_t>(7, 7, DataType::kUint32) == 0);
  CHECK(differs<uint32_t>(7, 8, DataType::kUint32) == 1);
  CHECK(differs<float>(1, std::nextafter(1.f, 2.f), DataType::kFloat32, ReduceOp::kMax) == 1);
  CHECK(differs<float>(0.f, -0.f, DataType::kFloat32, ReduceOp::kMin) == 0);
  const float nan = NAN;
  uint32_t other = 0xffc00001;
  float other_nan;
  std::memcpy(&other_nan, &other, 4);
  CHECK(differs<float>(nan, other_nan, DataType::kFloat32, ReduceOp::kMin) == 0);
  CHECK(differs<float>(nan, 1, DataType::kFloat32, ReduceOp::kMin) == 1);
  CHECK(differs<float>(1, nan, DataType::kFloat32) == 1);
  CHECK(differs<float>(1, INFINITY, DataType::kFloat32) == 1);
  const auto ours = array<int32_t>({1, 2, 3, 4}), theirs = array<int32_t>({1, 5, 3, 5});
  const Wrong wrong =
      differing(ours.data(), theirs.data(), 4, DataType::kInt32, ReduceOp::kSum, 2);
  CHECK(wrong.count == 2);
  CHECK(wrong.first == 1);
}

TEST_CASE("what is small beside the result needs no reference") {
  CHECK(differs<float>(1, std::nextafter(1.f, 2.f), DataType::kFloat32) == 0);
  CHECK(differs<float>(1, 1 + 0x1p-16f, DataType::kFloat32) == 1);
  CHECK(differs<uint16_t>(0x3f80, 0x3f81, DataType::kBfloat16) == 0);
  CHECK(differs<uint16_t>(0x3f80, 0x3f90, DataType::kBfloat16) == 1);
}

TEST_CASE("the reference tells rounding from an error") {
  // 1 + 2^-24 - 1: fp32 loses the small one on the way, which its size explains.
  CHECK(passes<float>(0, {1, 0x1p-24, -1}, DataType::kFloat32));
  CHECK_FALSE(passes<float>(0, {0x1p-24, 0x1p-24}, DataType::kFloat32));
  CHECK(passes<float>(3, {1, 2}, DataType::kFloat32));
  CHECK_FALSE(passes<float>(2, {1, 2}, DataType::kFloat32));
  CHECK_FALSE(passes<float>(NAN, {1, 2}, DataType::kFloat32));
  CHECK_FALSE(passes<float>(1, {NAN, 2}, DataType::kFloat32));
  CHECK(passes<float>(NAN, {NAN, 2}, DataType::kFloat32));
  CHECK_FALSE(passes<float>(0.25f, {1, 0}, DataType::kFloat32, ReduceOp::kAvg));
  CHECK(passes<float>(0.5f, {1, 0}, DataType::kFloat32, ReduceOp::kAvg));
  CHECK(passes<double>(0.1 + 0.2, {0.1, 0.2}, DataType::kFloat64));
  CHECK_FALSE(passes<double>(0.3 + 1e-12, {0.1, 0.2}, DataType::kFloat64));
  // bf16: 1 + 1/256 lies between two neighbours, half a step from both; a whole one is too far.
  CHECK(passes<uint16_t>(0x3f80, {1, 0x1p-8}, DataType::kBfloat16));
  CHECK(passes<uint16_t>(0x3f81, {1, 0x1p-8}, DataType::kBfloat16));
  CHECK_FALSE(passes<uint16_t>(0x3f82, {1, 0x1p-8}, DataType::kBfloat16));
  CHECK_FALSE(passes<uint8_t>(0x39, {1, 0}, DataType::kFloat8e4m3));  // 1.125
}

TEST_CASE("products") {
  CHECK(passes<float>(6, {2, 3}, DataType::kFloat32, ReduceOp::kProd));
  CHECK_FALSE(passes<float>(5, {2, 3}, DataType::kFloat32, ReduceOp::kProd));
  CHECK(passes<float>(6.0000005f, {2, 3}, DataType::kFloat32, ReduceOp::kProd));
  // On the way to 1 it was infinite, in fp32.
  CHECK(passes<float>(INFINITY, {1e30, 1e30, 1e-30, 1e-30}, DataType::kFloat32, ReduceOp::kProd));
}

TEST_CASE("what may overflow is not judged") {
  CHECK(passes<uint16_t>(0x7c00, {65000, 65000}, DataType::kFloat16));
  CHECK(passes<uint16_t>(0x7bff, {65000, 65000}, DataType::kFloat16));
  CHECK_FALSE(passes<uint16_t>(0x7c00, {10000, 10000}, DataType::kFloat16));
  CHECK(passes<float>(INFINITY, {INFINITY, 1}, DataType::kFloat32));
}

}  // namespace
}  // namespace shunt
