// Every kernel that is built: X(datatype enumerator, name as name_of gives it, protocol enumerator,
// protocol name, peers polled at once).
#pragma once

#define SHUNT_KERNELS_OF(X, batch)                         \
  X(kInt8, int8, kFlagged, flagged, batch)                 \
  X(kUint8, uint8, kFlagged, flagged, batch)               \
  X(kInt32, int32, kFlagged, flagged, batch)               \
  X(kUint32, uint32, kFlagged, flagged, batch)             \
  X(kInt64, int64, kFlagged, flagged, batch)               \
  X(kUint64, uint64, kFlagged, flagged, batch)             \
  X(kFloat16, half, kSentinel, sentinel, batch)            \
  X(kFloat32, float, kSentinel, sentinel, batch)           \
  X(kFloat64, double, kSentinel, sentinel, batch)          \
  X(kBfloat16, bfloat16, kSentinel, sentinel, batch)       \
  X(kFloat8e4m3, fp8_e4m3, kSentinel, sentinel, batch)     \
  X(kFloat8e5m2, fp8_e5m2, kSentinel, sentinel, batch)

#define SHUNT_KERNELS(X) SHUNT_KERNELS_OF(X, 1) SHUNT_KERNELS_OF(X, 3) SHUNT_KERNELS_OF(X, 7)
