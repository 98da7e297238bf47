// Inputs of all ranks and what every all-reduce of them gives, as long lines of elements: a call
// reads a part of the line of its type, so its result is the same part of the line of its type and
// operation. The numbers are small, so that sums are exact in every order of adding, NCCL's too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/datatype.h"
#include "test/gpu/soak/plan.h"

namespace shunt::soak {

using Line = std::vector<unsigned char>;

class Data {
 public:
  Data(const Settings& settings, const std::vector<DataType>& types, uint32_t rank);

  uint64_t line_bytes() const { return line_bytes_; }
  const Line& input(DataType type) const { return inputs_[static_cast<size_t>(type)]; }
  const Line& result(DataType type, ReduceOp op) const {
    return results_[static_cast<size_t>(type)][static_cast<size_t>(op)];
  }

 private:
  const uint64_t line_bytes_;
  std::array<Line, kDataTypes> inputs_;  // of this rank
  std::array<std::array<Line, kReduceOps>, kDataTypes> results_;
};

}  // namespace shunt::soak
