#include "test/cases/exchange.h"

#include <cstring>

namespace cases {
namespace {

constexpr size_t kGuardWords = 4;
constexpr uint32_t kPoison = 0x7bb7dead;

}  // namespace

uint64_t Random::next() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_ * 0x2545f4914f6cdd1du >> 16;
}

uint32_t word_of(uint64_t seed, int rank, size_t i) {
  uint64_t h = (seed * 0x9e3779b97f4a7c15u) ^ (static_cast<uint64_t>(rank + 1) << 40) ^ i;
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(h >> 44);
}

Exchange::Exchange(size_t bytes, ncclDataType_t type, bool in_place)
    : bytes_(bytes),
      type_(type),
      in_place_(in_place),
      send_(bytes + kGuardWords * 4),
      recv_(bytes + kGuardWords * 4),
      input_(bytes + kGuardWords * 4),
      output_(bytes + kGuardWords * 4) {
  ENSURE(bytes % 4 == 0);
  ENSURE(type == ncclUint32 || type == ncclFloat32);
}

uint32_t Exchange::converted(uint32_t sum) const {
  if (type_ == ncclUint32) return sum;
  const auto real = static_cast<float>(sum);
  uint32_t bits = 0;
  std::memcpy(&bits, &real, sizeof(bits));
  return bits;
}

void Exchange::fill(uint64_t seed, int rank, CUstream stream) {
  seed_ = seed;
  const size_t words = bytes_ / 4;
  for (size_t i = 0; i < words; ++i) input_.words()[i] = converted(word_of(seed, rank, i));
  for (size_t i = words; i < words + kGuardWords; ++i) input_.words()[i] = kPoison;
  CU(cuMemcpyHtoDAsync(send_.address(), input_.words(), bytes_ + kGuardWords * 4, stream));
  CU(cuMemsetD32Async(recv_.address(), kPoison, words + kGuardWords, stream));
}

void Exchange::call(ncclComm_t comm, CUstream stream, decltype(&ncclAllReduce) function) const {
  NCCL(function(send_.at(), reinterpret_cast<void*>(result()), bytes_ / 4, type_, ncclSum, comm,
                stream));
}

void Exchange::fetch(CUstream stream) const {
  CU(cuMemcpyDtoHAsync(output_.words(), result(), bytes_ + kGuardWords * 4, stream));
}

void Exchange::check(int ranks) const {
  const size_t words = bytes_ / 4;
  for (size_t i = 0; i < words + kGuardWords; ++i) {
    uint32_t want = kPoison;
    if (i < words) {
      uint32_t sum = 0;
      for (int r = 0; r < ranks; ++r) sum += word_of(seed_, r, i);
      want = converted(sum);
    }
    const uint32_t got = output_.words()[i];
    if (got == want) continue;
    throw std::runtime_error("wrong result: word " + std::to_string(i) + " of " +
                             std::to_string(words) + " is " + std::to_string(got) + ", must be " +
                             std::to_string(want));
  }
}

void Exchange::run(uint64_t seed, int rank, int ranks, ncclComm_t comm, const Stream& stream) {
  fill(seed, rank, stream);
  call(comm, stream);
  fetch(stream);
  stream.wait();
  check(ranks);
}

void Exchange::replay(const Graph& graph, uint64_t seed, int rank, int ranks, const Stream& stream,
                      const std::function<void()>& before) {
  fill(seed, rank, stream);
  if (before) before();
  graph.launch(stream);
  fetch(stream);
  stream.wait();
  check(ranks);
}

void run_sizes(const Rank& rank, ncclComm_t comm, const Stream& stream, uint64_t seed,
               const std::vector<size_t>& sizes) {
  for (const size_t bytes : sizes) {
    Exchange exchange(bytes, bytes % 8 == 0 ? ncclFloat32 : ncclUint32);
    exchange.run(seed + bytes, rank.rank, rank.ranks, comm, stream);
  }
}

}  // namespace cases
