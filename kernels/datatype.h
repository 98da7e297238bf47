// Datatypes, operations and protocols of a shunted all-reduce. Values of DataType and ReduceOp equal
// those of ncclDataType_t and ncclRedOp_t (nccl.h, "Data types" and "Reduction operation selector"), so
// that a call's arguments need no table; shim/engine/nccl_api.h pins that with static_assert.
#pragma once

#include <cstdint>

namespace shunt {

enum class DataType : uint32_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};
inline constexpr uint32_t kDataTypes = 12;

enum class ReduceOp : uint32_t { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };
inline constexpr uint32_t kReduceOps = 5;

// How a reader knows that a packet has arrived; see DESIGN.md, "The kernel".
enum class Protocol : uint32_t { kFlagged = 0, kSentinel = 1 };
inline constexpr uint32_t kProtocols = 2;

// Bytes of one element.
constexpr uint32_t size_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8e4m3:
    case DataType::kFloat8e5m2:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool is_float(DataType type) {
  return type == DataType::kFloat16 || type == DataType::kFloat32 || type == DataType::kFloat64 ||
         type == DataType::kBfloat16 || type == DataType::kFloat8e4m3 ||
         type == DataType::kFloat8e5m2;
}

constexpr bool is_float8(DataType type) {
  return type == DataType::kFloat8e4m3 || type == DataType::kFloat8e5m2;
}

// NCCL's own spelling, as nccl-tests prints it.
constexpr const char* name_of(DataType type) {
  constexpr const char* kNames[kDataTypes] = {"int8",  "uint8",  "int32",    "uint32",
                                              "int64", "uint64", "half",     "float",
                                              "double", "bfloat16", "fp8_e4m3", "fp8_e5m2"};
  return static_cast<uint32_t>(type) < kDataTypes ? kNames[static_cast<uint32_t>(type)] : "?";
}

constexpr const char* name_of(ReduceOp op) {
  constexpr const char* kNames[kReduceOps] = {"sum", "prod", "max", "min", "avg"};
  return static_cast<uint32_t>(op) < kReduceOps ? kNames[static_cast<uint32_t>(op)] : "?";
}

constexpr const char* name_of(Protocol protocol) {
  return protocol == Protocol::kSentinel ? "sentinel" : "flagged";
}

// Integers have no spare value, so they are flagged; floats use the NaN that is all ones.
constexpr Protocol protocol_of(DataType type) {
  return is_float(type) ? Protocol::kSentinel : Protocol::kFlagged;
}

}  // namespace shunt
