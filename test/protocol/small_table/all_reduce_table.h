// Few kernels, so that a negative control compiles in seconds: in place of kernels/all_reduce_table.h.
#pragma once

#define SHUNT_KERNELS_OF(X, variant, variant_name, batch)               \
  X(kInt32, int32, kFlagged, flagged, variant, variant_name, batch)     \
  X(kFloat32, float, kSentinel, sentinel, variant, variant_name, batch) \
  X(kFloat64, double, kSentinel, sentinel, variant, variant_name, batch) \
  X(kBfloat16, bfloat16, kSentinel, sentinel, variant, variant_name, batch)

#define SHUNT_KERNELS(X)                                              \
  SHUNT_KERNELS_OF(X, kFast, fast, 1) SHUNT_KERNELS_OF(X, kFast, fast, 3) \
  SHUNT_KERNELS_OF(X, kAny, any, 1) SHUNT_KERNELS_OF(X, kAny, any, 3) \
  X(kInt32, int32, kFlagged, flagged, kGrouped, grouped, 1)           \
  X(kBfloat16, bfloat16, kSentinel, sentinel, kGrouped, grouped, 1)
