#include "tools/worker/tune_data.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace shunt::tune {
namespace {

using tuner::Collective;

constexpr uint64_t kElement = 2;          // bytes of a bf16
constexpr uint64_t kWindow = 16 * 1024;   // elements that are compared at a place
constexpr uint64_t kWholly = 256 * 1024;  // up to so many, all are
constexpr unsigned char kPoison = 0xa7;   // 0xa7a7 is no whole number

}  // namespace

Shape shape_of(Collective collective, uint64_t bytes, uint32_t ranks) {
  const uint64_t all = bytes / kElement;
  const uint64_t part = all / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return {all, all, all};
    case Collective::kAllGather:
      return {part, part * ranks, part};
    case Collective::kReduceScatter:
      return {part * ranks, part, part};
  }
  return {};
}

int value_at(uint32_t ranks, uint32_t rank, uint64_t at) {
  // The sum of all ranks must stay below 256, where bf16 has every whole number.
  const uint64_t modulus = ranks <= 16 ? 17 : 5;
  return static_cast<int>((at * 7 + rank * 5) % modulus) - static_cast<int>(modulus / 2);
}

int expected_at(Collective collective, const Shape& shape, uint32_t ranks, uint32_t rank,
                uint64_t at) {
  if (collective == Collective::kAllGather) {
    return value_at(ranks, static_cast<uint32_t>(at / shape.count), at % shape.count);
  }
  if (collective == Collective::kReduceScatter) at += rank * shape.count;
  int sum = 0;
  for (uint32_t r = 0; r < ranks; ++r) sum += value_at(ranks, r, at);
  return sum;
}

uint16_t bfloat16_of(int value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}

TuneData::TuneData(uint64_t most_bytes, uint32_t ranks, uint32_t rank)
    : ranks_(ranks),
      rank_(rank),
      send_(bench::allocate(most_bytes)),
      receive_(bench::allocate(most_bytes)) {
  // A multiple of both moduli, so that the pattern goes on where the next piece begins.
  const uint64_t piece = std::min<uint64_t>(most_bytes / kElement, uint64_t{17} * 5 * 16 * 1024);
  std::vector<uint16_t> host(piece);
  for (uint64_t i = 0; i < piece; ++i) host[i] = bfloat16_of(value_at(ranks, rank, i));
  for (uint64_t at = 0; at < most_bytes / kElement; at += piece) {
    const uint64_t length = std::min(piece, most_bytes / kElement - at);
    SHUNT_DRIVER(cuMemcpyHtoD(send_.get() + at * kElement, host.data(), length * kElement));
  }
}

void TuneData::poison(CUstream stream, const Shape& shape) {
  SHUNT_DRIVER(cuMemsetD8Async(receive_.get(), kPoison, shape.receive * kElement, stream));
}

std::string TuneData::check(CUstream stream, Collective collective, const Shape& shape) const {
  const uint64_t all = shape.receive;
  const uint64_t length = all <= kWholly ? all : kWindow;
  std::vector<uint64_t> places = {0};
  if (all > kWholly) {
    const uint64_t last = all - length;
    for (uint64_t i = 1; i <= 8; ++i) places.push_back(last / 8 * i);
    places.push_back(last);
    for (uint64_t i = 1; i <= 6; ++i) places.push_back(i * 0x9e3779b97f4a7c15 % (last + 1));
  }
  std::vector<uint16_t> host(length);
  for (const uint64_t place : places) {
    SHUNT_DRIVER(cuMemcpyDtoHAsync(host.data(), receive_.get() + place * kElement,
                                   length * kElement, stream));
    SHUNT_DRIVER(cuStreamSynchronize(stream));
    for (uint64_t i = 0; i < length; ++i) {
      const int expected = expected_at(collective, shape, ranks_, rank_, place + i);
      // Zero has two forms.
      const bool zero = expected == 0 && (host[i] & 0x7fff) == 0;
      if (host[i] == bfloat16_of(expected) || zero) continue;
      const float got = std::bit_cast<float>(uint32_t{host[i]} << 16);
      return "element " + std::to_string(place + i) + " is " + std::to_string(got) + ", must be " +
             std::to_string(expected);
    }
  }
  return "";
}

}  // namespace shunt::tune
