// Pair::sum against the sum of one rank after the other, for every pair of two-byte floats. Thread x of the grid takes
// first element x and all second elements; `wrong` counts the pairs whose bits differ, `first` is one such pair.
#include "kernels/sum.cuh"

namespace shunt {

struct PackedSumsResult {
  unsigned long long wrong;
  unsigned long long first;  // a << 16 | b, + 1
};

template <DataType kType>
SHUNT_DEVICE void compare(PackedSumsResult* result) {
  using C = Codec<kType, Protocol::kSentinel, true>;
  const uint32_t a = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t pair_of_a = a | a << 16;
  unsigned long long wrong = 0, first = 0;
  for (uint32_t b = 0; b < 0x10000; b += 8) {
    Packet other{};
    for (uint32_t i = 0; i < 4; ++i) other.w[i] = (b + 2 * i) | (b + 2 * i + 1) << 16;
    const Packet own{{pair_of_a, pair_of_a, pair_of_a, pair_of_a}};
    Sum<C> sum;
    sum.start(own);
    sum.template add<ReduceOp::kSum>(other);
    const Packet wanted = sum.template result<ReduceOp::kSum>(2);
    const Packet got = Pair<C>::sum(own, other);
    for (uint32_t i = 0; i < 8; ++i) {
      const uint32_t shift = i % 2 * 16;
      if (((wanted.w[i / 2] ^ got.w[i / 2]) >> shift & 0xffff) == 0) continue;
      ++wrong;
      first = (static_cast<unsigned long long>(a) << 16 | (b + i)) + 1;
    }
  }
  if (wrong != 0) {
    atomicAdd(&result->wrong, wrong);
    atomicExch(&result->first, first);
  }
}

}  // namespace shunt

extern "C" __global__ void packed_sums_half(shunt::PackedSumsResult* result) {
  shunt::compare<shunt::DataType::kFloat16>(result);
}
extern "C" __global__ void packed_sums_bfloat16(shunt::PackedSumsResult* result) {
  shunt::compare<shunt::DataType::kBfloat16>(result);
}
