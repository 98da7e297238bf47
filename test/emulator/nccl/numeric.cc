#include "test/emulator/nccl/numeric.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace emu_nccl {
namespace {

// Storage of the small floats, so that no operator of the CUDA headers is picked up by accident.
template <typename T, float (*kToFloat)(T), T (*kFromFloat)(float)>
struct Small {
  T bits;
  float widen() const { return kToFloat(bits); }
  static Small narrow(float value) { return {kFromFloat(value)}; }
};

float half_to_float(__half x) { return __half2float(x); }
__half float_to_half(float x) { return __float2half_rn(x); }
// By hand: the header's host version keeps the compiler from using vectors, ten times slower.
float bfloat_to_float(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
uint16_t float_to_bfloat(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

template <__nv_fp8_interpretation_t kKind>
float fp8_to_float(__nv_fp8_storage_t x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, kKind)));
}
// NCCL computes in half and saturates: two roundings, infinity becomes the largest finite value.
template <__nv_fp8_interpretation_t kKind>
__nv_fp8_storage_t float_to_fp8(float x) {
  return __nv_cvt_halfraw_to_fp8(static_cast<__half_raw>(__float2half_rn(x)), __NV_SATFINITE,
                                 kKind);
}

using Half = Small<__half, half_to_float, float_to_half>;
using Bfloat = Small<uint16_t, bfloat_to_float, float_to_bfloat>;
using E4m3 = Small<__nv_fp8_storage_t, fp8_to_float<__NV_E4M3>, float_to_fp8<__NV_E4M3>>;
using E5m2 = Small<__nv_fp8_storage_t, fp8_to_float<__NV_E5M2>, float_to_fp8<__NV_E5M2>>;

template <typename T>
inline constexpr bool kIsSmall = std::is_class_v<T>;

template <typename F>
void with_type(int type, F&& f) {
  switch (type) {
    case ncclInt8:
      return f.template operator()<int8_t>();
    case ncclUint8:
      return f.template operator()<uint8_t>();
    case ncclInt32:
      return f.template operator()<int32_t>();
    case ncclUint32:
      return f.template operator()<uint32_t>();
    case ncclInt64:
      return f.template operator()<int64_t>();
    case ncclUint64:
      return f.template operator()<uint64_t>();
    case ncclFloat16:
      return f.template operator()<Half>();
    case ncclFloat32:
      return f.template operator()<float>();
    case ncclFloat64:
      return f.template operator()<double>();
    case ncclBfloat16:
      return f.template operator()<Bfloat>();
    case ncclFloat8e4m3:
      return f.template operator()<E4m3>();
    case ncclFloat8e5m2:
      return f.template operator()<E5m2>();
    default:
      return;
  }
}

// CUDA's fmax and fmin: a NaN loses against a number, +0 is above -0.
template <typename T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
  }
  return a < b ? b : a;
}

template <typename T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return b;
    if (std::isnan(b)) return a;
    if (a == 0 && b == 0) return std::signbit(a) ? a : b;
  }
  return b < a ? b : a;
}

// Signed overflow wraps, so sums and products of integers go through the unsigned type; widened to
// 64 bits, since a product of two 16-bit or 32-bit values may otherwise be promoted to a signed
// int.
template <Combine kHow, typename T>
T apply(T a, T b) {
  if constexpr (kIsSmall<T>) {
    return T::narrow(apply<kHow>(a.widen(), b.widen()));
  } else if constexpr (kHow == Combine::kMax) {
    return larger(a, b);
  } else if constexpr (kHow == Combine::kMin) {
    return smaller(a, b);
  } else if constexpr (std::is_integral_v<T>) {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(kHow == Combine::kSum ? x + y : x * y);
  } else {
    return kHow == Combine::kSum ? a + b : a * b;
  }
}

template <Combine kHow, typename T>
void combine_all(void* into, const void* from, size_t count) {
  T* x = static_cast<T*>(into);
  const T* y = static_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) x[i] = apply<kHow>(x[i], y[i]);
}

}  // namespace

size_t size_of(int type) {
  size_t bytes = 0;
  with_type(type, [&]<typename T>() { bytes = sizeof(T); });
  return bytes;
}

const char* name_of(ncclDataType_t type) {
  constexpr const char* kNames[] = {"int8", "uint8", "int32",  "uint32",   "int64",    "uint64",
                                    "half", "float", "double", "bfloat16", "fp8_e4m3", "fp8_e5m2"};
  return static_cast<unsigned>(type) < std::size(kNames) ? kNames[type] : "?";
}

bool is_integer(ncclDataType_t type) { return type >= ncclInt8 && type <= ncclUint64; }
bool is_float8(ncclDataType_t type) { return type == ncclFloat8e4m3 || type == ncclFloat8e5m2; }

Scalar reciprocal(ncclDataType_t type, int n) {
  Scalar scalar;
  with_type(type, [&]<typename T>() {
    T value{};
    if constexpr (std::is_same_v<T, double>) {
      value = 1.0 / n;
    } else if constexpr (std::is_same_v<T, float>) {
      value = static_cast<float>(1.0 / n);
    } else if constexpr (kIsSmall<T>) {
      value = T::narrow(static_cast<float>(1.0 / n));
    }
    std::memcpy(scalar.bytes, &value, sizeof(T));
  });
  // hostToDevRedOp converts float to fp8 directly, without the stop at half.
  const float exact = static_cast<float>(1.0 / n);
  if (type == ncclFloat8e4m3)
    scalar.bytes[0] = __nv_cvt_float_to_fp8(exact, __NV_SATFINITE, __NV_E4M3);
  if (type == ncclFloat8e5m2)
    scalar.bytes[0] = __nv_cvt_float_to_fp8(exact, __NV_SATFINITE, __NV_E5M2);
  return scalar;
}

void scale(ncclDataType_t type, void* data, size_t count, const Scalar& scalar) {
  with_type(type, [&]<typename T>() {
    T factor;
    std::memcpy(&factor, scalar.bytes, sizeof(T));
    T* x = static_cast<T*>(data);
    for (size_t i = 0; i < count; ++i) x[i] = apply<Combine::kProd>(x[i], factor);
  });
}

void combine(ncclDataType_t type, Combine how, void* into, const void* from, size_t count) {
  with_type(type, [&]<typename T>() {
    switch (how) {
      case Combine::kSum:
        return combine_all<Combine::kSum, T>(into, from, count);
      case Combine::kProd:
        return combine_all<Combine::kProd, T>(into, from, count);
      case Combine::kMax:
        return combine_all<Combine::kMax, T>(into, from, count);
      case Combine::kMin:
        return combine_all<Combine::kMin, T>(into, from, count);
    }
  });
}

void divide(ncclDataType_t type, void* data, size_t count, int n) {
  with_type(type, [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) {
      T* x = static_cast<T*>(data);
      for (size_t i = 0; i < count; ++i) {
        // By the magnitude, in unsigned 64 bits: the lowest signed value has no positive twin.
        const bool negative = x[i] < T{0};
        const uint64_t raw = static_cast<uint64_t>(x[i]);
        const uint64_t quotient = (negative ? 0 - raw : raw) / static_cast<uint64_t>(n);
        x[i] = static_cast<T>(negative ? 0 - quotient : quotient);
      }
    }
  });
}

}  // namespace emu_nccl
