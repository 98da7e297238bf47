// Every kernel that is built: X(datatype enumerator, name as name_of gives it, protocol enumerator,
// protocol name, Variant enumerator, name of that, peers polled at once).
#pragma once

#define SHUNT_KERNELS_OF(X, variant, variant_name, batch)                         \
  X(kInt8, int8, kFlagged, flagged, variant, variant_name, batch)                 \
  X(kUint8, uint8, kFlagged, flagged, variant, variant_name, batch)               \
  X(kInt32, int32, kFlagged, flagged, variant, variant_name, batch)               \
  X(kUint32, uint32, kFlagged, flagged, variant, variant_name, batch)             \
  X(kInt64, int64, kFlagged, flagged, variant, variant_name, batch)               \
  X(kUint64, uint64, kFlagged, flagged, variant, variant_name, batch)             \
  X(kFloat16, half, kSentinel, sentinel, variant, variant_name, batch)            \
  X(kFloat32, float, kSentinel, sentinel, variant, variant_name, batch)           \
  X(kFloat64, double, kSentinel, sentinel, variant, variant_name, batch)          \
  X(kBfloat16, bfloat16, kSentinel, sentinel, variant, variant_name, batch)       \
  X(kFloat8e4m3, fp8_e4m3, kSentinel, sentinel, variant, variant_name, batch)     \
  X(kFloat8e5m2, fp8_e5m2, kSentinel, sentinel, variant, variant_name, batch)

#define SHUNT_KERNELS(X)                                                                        \
  SHUNT_KERNELS_OF(X, kFast, fast, 1) SHUNT_KERNELS_OF(X, kFast, fast, 3)                           \
  SHUNT_KERNELS_OF(X, kFast, fast, 7) SHUNT_KERNELS_OF(X, kAny, any, 1)                           \
  SHUNT_KERNELS_OF(X, kAny, any, 3) SHUNT_KERNELS_OF(X, kAny, any, 7)                               \
  SHUNT_KERNELS_OF(X, kGrouped, grouped, 1) SHUNT_KERNELS_OF(X, kGrouped, grouped, 3)               \
  SHUNT_KERNELS_OF(X, kGrouped, grouped, 7)
