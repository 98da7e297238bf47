// What an all-reduce must give, computed apart from the product: rank order, fp32 (fp64 for
// doubles), rounding to nearest even, integers modulo their width.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/datatype.h"
#include "test/protocol/random.h"

namespace sim {

using Bytes = std::vector<unsigned char>;

// One rank's input: ordinary numbers, and with `odd` also NaN, all ones, infinities, -0, denormals.
Bytes make_input(shunt::DataType type, uint64_t count, bool odd, Rng& rng);

Bytes reduce(shunt::DataType type, shunt::ReduceOp op, uint64_t count,
             const std::vector<Bytes>& inputs);

// Bit-equal, except that any NaN equals any NaN and, for min and max, -0 equals +0: which NaN and
// which zero come out is the machine's choice.
bool same_element(shunt::DataType type, shunt::ReduceOp op, const unsigned char* a,
                  const unsigned char* b);

}  // namespace sim
