// The arithmetic of reductions, element type by element type, rounding to the type at every step as
// NCCL's kernels do (src/device/reduce_kernel.h of NCCL 2.28.9).
#pragma once

#include <nccl.h>

#include <cstddef>

namespace emu_nccl {

// How two contributions become one. Averages are sums: floats are scaled by 1/n before, integers
// divided by n after.
enum class Combine { kSum, kProd, kMax, kMin };

struct Scalar {
  alignas(8) unsigned char bytes[8] = {};
};

// 0 for what is no ncclDataType_t.
size_t size_of(int type);
const char* name_of(ncclDataType_t type);
bool is_integer(ncclDataType_t type);
bool is_float8(ncclDataType_t type);

// 1/n in the type, as NCCL rounds it for ncclAvg.
Scalar reciprocal(ncclDataType_t type, int n);

// data[i] = round(data[i] * scalar)
void scale(ncclDataType_t type, void* data, size_t count, const Scalar& scalar);
// into[i] = round(combine(into[i], from[i])). max and min drop NaN.
void combine(ncclDataType_t type, Combine how, void* into, const void* from, size_t count);
// Integers only: data[i] = truncate(data[i] / n)
void divide(ncclDataType_t type, void* data, size_t count, int n);

}  // namespace emu_nccl
