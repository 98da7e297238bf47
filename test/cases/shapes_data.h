// What the shapes_ cases share: one checked all-reduce with guard bytes, and inputs that every rank
// knows.
#pragma once

#include "test/cases/client.h"
#include "test/catch.h"
#include "test/protocol/numbers.h"

namespace cases {

using shunt::DataType;
using shunt::ReduceOp;

inline ncclDataType_t nccl_type(DataType type) { return static_cast<ncclDataType_t>(type); }
inline ncclRedOp_t nccl_op(ReduceOp op) { return static_cast<ncclRedOp_t>(op); }
std::string name_of(DataType type, ReduceOp op, size_t count);

// Deterministic, the same in every process.
uint64_t hash_of(uint64_t a, uint64_t b, uint64_t c = 0);
uint64_t hash_of(const Bytes& bytes);

// Whole numbers whose sum, product and average over two ranks are exact in every type and any
// order.
Bytes whole_numbers(DataType type, ReduceOp op, size_t count, uint64_t seed);
// sim::make_input of every rank.
std::vector<Bytes> all_inputs(DataType type, size_t count, bool odd, int ranks, uint64_t seed);

double value_of(DataType type, const unsigned char* element);
bool is_nan(DataType type, const unsigned char* element);

// Where one rank's buffers lie. Ranks choose differently.
struct Place {
  size_t send_offset = 0;  // bytes, a multiple of the element
  size_t recv_offset = 0;
  bool in_place = false;
  bool at_end = false;  // buffers end where their allocations do
};
Place place_of(int rank, uint32_t serial, DataType type);

// One rank's two arenas. Everything around the result is poisoned before and compared after each
// call, and what was sent must still be there.
class Arena {
 public:
  Arena(const Rank& rank, ncclComm_t comm, size_t most_bytes);

  enum class By { kNccl, kPncclPastTheLibrary };
  // Returns the result; FAILs if a byte beside it changed. Waits.
  Bytes all_reduce(DataType type, ReduceOp op, size_t count, const Bytes& mine, const Place& place,
                   By by = By::kNccl);
  const Stream& stream() const { return stream_; }

 private:
  const Rank& rank_;
  ncclComm_t comm_;
  Stream stream_;
  Memory send_, recv_;
};

// REQUIREs what adding in rank order gives, and says which element is wrong.
void require_same(DataType type, ReduceOp op, const std::vector<Bytes>& inputs, const Bytes& got);

}  // namespace cases
