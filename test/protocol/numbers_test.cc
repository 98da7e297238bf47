// The reference itself: the simulation's word counts for nothing if this is wrong.
#include "test/protocol/numbers.h"

#include <bit>
#include <cstring>

#include "test/catch.h"
#include "test/protocol/small_float.h"

// Device-only headers compile for the host; they are the second opinion here.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace {

template <typename T>
void agree(const sim::SmallFloat& format) {
  uint64_t wrong = 0;
  for (uint32_t bits = 0; bits < 1u << (8 * sizeof(T)); ++bits) {
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    const float mine = sim::decode(format, bits), theirs = static_cast<float>(value);
    wrong += std::isnan(mine) ? !std::isnan(theirs)
                              : std::bit_cast<uint32_t>(mine) != std::bit_cast<uint32_t>(theirs);
  }
  sim::Rng rng(7);
  for (int i = 0; i < 1'000'000; ++i) {
    // Any float, and floats about the small format's range.
    float value = std::bit_cast<float>(static_cast<uint32_t>(rng.next()));
    if (i % 2 == 1)
      value = std::ldexp(1 + static_cast<float>(rng.below(1 << 12)) / (1 << 12),
                         static_cast<int>(rng.below(60)) - 30);
    if (std::isnan(value)) continue;
    const T theirs(value);
    uint32_t bits = 0;
    std::memcpy(&bits, &theirs, sizeof(T));
    wrong += sim::encode(format, value) != bits;
  }
  CHECK(wrong == 0);
}

template <typename T>
sim::Bytes bytes(std::initializer_list<T> values) {
  sim::Bytes out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.begin(), out.size());
  return out;
}

}  // namespace

TEST_CASE("small floats are those of the toolkit") {
  agree<__half>(sim::kHalf);
  agree<__nv_bfloat16>(sim::kBfloat16);
  agree<__nv_fp8_e4m3>(sim::kFloat8e4m3);
  agree<__nv_fp8_e5m2>(sim::kFloat8e5m2);
}

TEST_CASE("sums by hand") {
  using shunt::DataType, shunt::ReduceOp;
  const auto i8 = [](ReduceOp op) {
    return sim::reduce(DataType::kInt8, op, 2, {bytes<int8_t>({100, -7}), bytes<int8_t>({100, 4})});
  };
  CHECK(i8(ReduceOp::kSum) == bytes<int8_t>({-56, -3}));
  CHECK(i8(ReduceOp::kAvg) == bytes<int8_t>({-28, -1}));
  CHECK(i8(ReduceOp::kMax) == bytes<int8_t>({100, 4}));
  CHECK(i8(ReduceOp::kMin) == bytes<int8_t>({100, -7}));
  CHECK(i8(ReduceOp::kProd) == bytes<int8_t>({16, -28}));
  const uint64_t large = uint64_t{1} << 63;
  CHECK(sim::reduce(DataType::kUint64, ReduceOp::kMax, 1,
                    {bytes<uint64_t>({large + 1}), bytes<uint64_t>({5})}) ==
        bytes<uint64_t>({large + 1}));
  const std::vector<sim::Bytes> floats{bytes<float>({1e8f, NAN}), bytes<float>({1.0f, 2.0f}),
                                       bytes<float>({-1e8f, 3.0f})};
  CHECK(sim::reduce(DataType::kFloat32, ReduceOp::kMax, 2, floats) == bytes<float>({1e8f, 3.0f}));
  // Rank order, in fp32: the 1 is lost.
  CHECK(sim::reduce(DataType::kFloat32, ReduceOp::kSum, 1, floats) == bytes<float>({0.0f}));
}
