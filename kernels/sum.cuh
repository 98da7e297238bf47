// Adding packets up, element by element, in the order they are given.
#pragma once

#include "kernels/codec.cuh"
#include "kernels/launch_plan.h"

namespace shunt {

// Calls f with the operation as a compile-time constant: one branch a packet, not one an element.
template <Variant kVariant, typename F>
SHUNT_DEVICE void with_op(uint8_t op, F&& f) {
  if constexpr (kVariant == Variant::kFast) {
    f(std::integral_constant<ReduceOp, ReduceOp::kSum>{});
  } else {
    switch (static_cast<ReduceOp>(op)) {
      case ReduceOp::kSum: return f(std::integral_constant<ReduceOp, ReduceOp::kSum>{});
      case ReduceOp::kProd: return f(std::integral_constant<ReduceOp, ReduceOp::kProd>{});
      case ReduceOp::kMax: return f(std::integral_constant<ReduceOp, ReduceOp::kMax>{});
      case ReduceOp::kMin: return f(std::integral_constant<ReduceOp, ReduceOp::kMin>{});
      case ReduceOp::kAvg: return f(std::integral_constant<ReduceOp, ReduceOp::kAvg>{});
    }
  }
}

template <typename C>
class Sum {
 public:
  using T = typename C::T;
  using E = Elements<T>;

  SHUNT_DEVICE void start(Packet p) {
    SHUNT_UNROLL
    for (uint32_t g = 0; g < kGroups; ++g) E::widen(p.w + g * E::kWords, acc_ + g * E::kCount);
  }
  template <ReduceOp kOp>
  SHUNT_DEVICE void add(Packet p) {
    SHUNT_UNROLL
    for (uint32_t g = 0; g < kGroups; ++g) {
      Acc<T> wide[E::kCount];
      E::widen(p.w + g * E::kWords, wide);
      SHUNT_UNROLL
      for (uint32_t e = 0; e < E::kCount; ++e) {
        acc_[g * E::kCount + e] = combine<kOp>(acc_[g * E::kCount + e], wide[e]);
      }
    }
  }
  template <ReduceOp kOp>
  SHUNT_DEVICE Packet result(uint32_t ranks) const {
    Packet p{};
    SHUNT_UNROLL
    for (uint32_t g = 0; g < kGroups; ++g) {
      Acc<T> done[E::kCount];
      SHUNT_UNROLL
      for (uint32_t e = 0; e < E::kCount; ++e) {
        done[e] = finish<kOp>(acc_[g * E::kCount + e], ranks);
      }
      E::narrow(done, p.w + g * E::kWords);
    }
    return p;
  }

 private:
  static constexpr uint32_t kGroups = C::kWords / E::kWords;
  Acc<T> acc_[kGroups * E::kCount] = {};
};

// The sum of two packets. Two-byte floats are added as they are: rounding a sum to fp32's 24 bits and then to p bits
// is rounding it once where 24 >= 2p + 2 (S. A. Figueroa, "When is double rounding innocuous?", 1995; p is 11
// for fp16, 8 for bf16). packed_sums_test compares all pairs.
template <typename C>
struct Pair {
  using T = typename C::T;
  SHUNT_DEVICE static Packet sum(Packet a, Packet b) {
    if constexpr (device::kSumsCommute && (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>)) {
      using Two = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
      SHUNT_UNROLL
      for (uint32_t i = 0; i < C::kWords; ++i) {
        Two x, y;
        memcpy(static_cast<void*>(&x), &a.w[i], 4);
        memcpy(static_cast<void*>(&y), &b.w[i], 4);
        x = __hadd2_rn(x, y);
        memcpy(&a.w[i], static_cast<const void*>(&x), 4);
      }
      return a;
    } else {
      Sum<C> sum;
      sum.start(a);
      sum.template add<ReduceOp::kSum>(b);
      return sum.template result<ReduceOp::kSum>(2);
    }
  }
};

}  // namespace shunt
