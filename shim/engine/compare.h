// Is the result of a shunted call right? Compared with NCCL's, and where rounding could explain what differs,
// judged by a reference in double precision. Pure; host memory only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/datatype.h"

namespace shunt {

// Element `at` of an array, floats as their value, integers as the nearest double (for lines and references).
double value_at(const unsigned char* elements, size_t at, DataType type);
uint64_t bits_at(const unsigned char* elements, size_t at, DataType type);

// Elements of an array that are not as they must be.
struct Wrong {
  size_t count = 0;
  size_t first = 0;
  void add(size_t at) {
    if (count++ == 0) first = at;
  }
};

// Floats are added and multiplied in another order than NCCL's, and NCCL rounds at every hop: what differs by
// more than either would explain needs a reference. Everything else must be equal.
constexpr bool rounds(DataType type, ReduceOp op) {
  return is_float(type) && (op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kProd);
}
Wrong differing(const unsigned char* ours, const unsigned char* theirs, size_t count, DataType type,
                ReduceOp op, uint32_t ranks);

// What each rank contributes to the reference of one element: `value`, to be added up (kProd: multiplied),
// and `size`, to be added up: how large what was added or multiplied on the way may have been.
struct Share {
  double value;
  double size;
};
Share share_of(double input, ReduceOp op);

// Elements first .. first + values.size() of `ours`, with the sums of all ranks' shares: false where the error
// is more than this library's rounding may make. Where something may have overflowed on the way: true.
Wrong beyond_rounding(const unsigned char* ours, size_t first, std::span<const double> values,
                      std::span<const double> sizes, DataType type, ReduceOp op, uint32_t ranks);

}  // namespace shunt
