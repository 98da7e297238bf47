// The buffers of one rank for a whole tuning run, and how a result is checked. Data are small whole
// numbers in bf16, whose sums every order of adding gets exactly: a result is right or wrong.
#pragma once

#include <cstdint>
#include <string>

#include "plugin/profile.h"
#include "tools/worker/driver.h"

namespace shunt::tune {

struct Shape {
  uint64_t send = 0, receive = 0;  // elements of a rank's buffers
  uint64_t count = 0;              // NCCL's argument
};
// `bytes` as in a profile's rule: of the larger buffer. Zero elements where the size has none.
Shape shape_of(tuner::Collective collective, uint64_t bytes, uint32_t ranks);

// Element `at` that `rank` sends.
int value_at(uint32_t ranks, uint32_t rank, uint64_t at);
// Element `at` that `rank` must receive.
int expected_at(tuner::Collective collective, const Shape& shape, uint32_t ranks, uint32_t rank,
                uint64_t at);
uint16_t bfloat16_of(int value);  // exact up to 256

class TuneData {
 public:
  // Blocks until the send buffer is filled.
  TuneData(uint64_t most_bytes, uint32_t ranks, uint32_t rank);

  const void* send() const { return reinterpret_cast<const void*>(send_.get()); }
  void* receive() const { return reinterpret_cast<void*>(receive_.get()); }

  // Overwrites what a call of this shape must write. Asynchronous.
  void poison(CUstream stream, const Shape& shape);
  // Compares beginning, middle, end and some places between with what must be there; all of it up
  // to 512 KiB. Empty: right. Blocks.
  std::string check(CUstream stream, tuner::Collective collective, const Shape& shape) const;

 private:
  uint32_t ranks_;
  uint32_t rank_;
  bench::DeviceMemory send_, receive_;
};

}  // namespace shunt::tune
