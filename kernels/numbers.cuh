// What one element is and how elements are combined. Every datatype accumulates in Acc<T> in rank order;
// see DESIGN.md, "Numbers".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/datatype.h"
#include "kernels/device_access.cuh"

namespace shunt {

template <DataType>
struct ElementOf;
template <> struct ElementOf<DataType::kInt8> { using type = int8_t; };
template <> struct ElementOf<DataType::kUint8> { using type = uint8_t; };
template <> struct ElementOf<DataType::kInt32> { using type = int32_t; };
template <> struct ElementOf<DataType::kUint32> { using type = uint32_t; };
template <> struct ElementOf<DataType::kInt64> { using type = int64_t; };
template <> struct ElementOf<DataType::kUint64> { using type = uint64_t; };
template <> struct ElementOf<DataType::kFloat16> { using type = __half; };
template <> struct ElementOf<DataType::kFloat32> { using type = float; };
template <> struct ElementOf<DataType::kFloat64> { using type = double; };
template <> struct ElementOf<DataType::kBfloat16> { using type = __nv_bfloat16; };
template <> struct ElementOf<DataType::kFloat8e4m3> { using type = __nv_fp8_e4m3; };
template <> struct ElementOf<DataType::kFloat8e5m2> { using type = __nv_fp8_e5m2; };

// Integers keep their own type, so sums wrap as NCCL's do; floats up to fp32 widen to fp32.
template <typename T>
using Acc = std::conditional_t<std::is_integral_v<T> || std::is_same_v<T, double>, T, float>;

// The elements of a 4-byte word (of a pair of words for 8-byte types), widened; and back. Rounds to nearest
// even; fp8 saturates to the largest finite value, as NCCL's conversion does.
template <typename T>
struct Elements {
  static constexpr uint32_t kCount = sizeof(T) == 8 ? 1 : 4 / sizeof(T);
  static constexpr uint32_t kWords = sizeof(T) == 8 ? 2 : 1;

  SHUNT_DEVICE static void widen(const uint32_t* words, Acc<T>* out) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const uint32_t low = words[0] << 16, high = words[0] & 0xffff0000u;
      memcpy(&out[0], &low, 4);
      memcpy(&out[1], &high, 4);
    } else if constexpr (std::is_same_v<T, __half>) {
      __half2 pair;
      memcpy(static_cast<void*>(&pair), words, 4);
      const float2 wide = __half22float2(pair);
      out[0] = wide.x;
      out[1] = wide.y;
    } else if constexpr (sizeof(T) >= 4) {
      memcpy(out, words, sizeof(T));
    } else {
      SHUNT_UNROLL
      for (uint32_t e = 0; e < kCount; ++e) {
        const auto byte = static_cast<uint8_t>(words[0] >> (8 * e));
        T element;
        memcpy(static_cast<void*>(&element), &byte, 1);
        out[e] = static_cast<Acc<T>>(element);
      }
    }
  }
  SHUNT_DEVICE static void narrow(const Acc<T>* in, uint32_t* words) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(in[0], in[1]);
      memcpy(words, &pair, 4);
    } else if constexpr (std::is_same_v<T, __half>) {
      const __half2 pair = __floats2half2_rn(in[0], in[1]);
      memcpy(words, &pair, 4);
    } else if constexpr (sizeof(T) >= 4) {
      memcpy(words, in, sizeof(T));
    } else {
      words[0] = 0;
      SHUNT_UNROLL
      for (uint32_t e = 0; e < kCount; ++e) {
        const T element(in[e]);
        uint8_t byte;
        memcpy(&byte, &element, 1);
        words[0] |= uint32_t{byte} << (8 * e);
      }
    }
  }
};

// A NaN gives the other operand, as in NCCL. On a host not by fmin and fmax: glibc's give a NaN for a
// signalling one, which a GPU's instructions do not.
#ifdef __CUDACC__
template <typename A>
SHUNT_DEVICE A larger(A a, A b) { return fmax(a, b); }
template <typename A>
SHUNT_DEVICE A smaller(A a, A b) { return fmin(a, b); }
#else
template <typename A>
SHUNT_DEVICE A larger(A a, A b) { return std::isnan(a) || a < b ? (std::isnan(b) ? a : b) : a; }
template <typename A>
SHUNT_DEVICE A smaller(A a, A b) { return std::isnan(a) || b < a ? (std::isnan(b) ? a : b) : a; }
#endif

template <ReduceOp kOp, typename A>
SHUNT_DEVICE A combine(A a, A b) {
  if constexpr (std::is_integral_v<A>) {
    // In the unsigned type: signed overflow is undefined, NCCL's wraps.
    using U = std::make_unsigned_t<A>;
    if constexpr (kOp == ReduceOp::kProd) {
      return static_cast<A>(static_cast<U>(uint64_t{static_cast<U>(a)} * static_cast<U>(b)));
    } else if constexpr (kOp == ReduceOp::kMax) {
      return a < b ? b : a;
    } else if constexpr (kOp == ReduceOp::kMin) {
      return b < a ? b : a;
    } else {
      return static_cast<A>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    }
  } else if constexpr (kOp == ReduceOp::kProd) {
    return a * b;
  } else if constexpr (kOp == ReduceOp::kMax) {
    return larger(a, b);
  } else if constexpr (kOp == ReduceOp::kMin) {
    return smaller(a, b);
  } else {
    return a + b;
  }
}

// kAvg divides after the sum: floats in Acc, integers truncate after the sum has wrapped to T.
template <ReduceOp kOp, typename A>
SHUNT_DEVICE A finish(A sum, uint32_t ranks) {
  if constexpr (kOp != ReduceOp::kAvg) {
    return sum;
  } else if constexpr (std::is_signed_v<A> && std::is_integral_v<A>) {
    return static_cast<A>(static_cast<int64_t>(sum) / static_cast<int64_t>(ranks));
  } else {
    return static_cast<A>(sum / static_cast<A>(ranks));
  }
}

}  // namespace shunt
