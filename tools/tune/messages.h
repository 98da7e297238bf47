// What `nccl-shunt tune` and its workers say to each other. The order: the launcher sends options
// (as for a benchmark) and passes the id on; each worker sends "machine" when it is ready; then any
// number of "try", each answered by every worker with "tried"; then "stop".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugin/profile.h"
#include "tools/bench/fields.h"

namespace shunt::tune {

using tuner::Collective;
using tuner::Wish;

// One configuration to measure.
struct Try {
  Collective collective = Collective::kAllReduce;
  uint64_t bytes = 0;  // as in a profile's rule
  Wish wish;           // empty: NCCL's own choice
  uint32_t calls = 50, warmups = 1, replays = 5;
  bool unsafe = false;  // LL128 also where NCCL rules it out
};

enum class Status : uint64_t {
  kMeasured = 0,
  kRuledOut = 1,  // NCCL does not run it here
  kUnasked = 2    // NCCL has not called the plugin: it is too old, or loaded another one
};

// What one rank found.
struct Tried {
  uint32_t rank = 0;
  Status status = Status::kMeasured;
  std::vector<double> us;  // by replay
  std::string problem;     // a wrong result; empty if none
  Wish cheapest;           // NCCL's own choice
  uint64_t allowed = 0;    // bit algorithm * 3 + protocol
};

bench::Fields to_fields(const Try& t);
bench::Fields to_fields(const Tried& tried);
// Throw std::runtime_error for a malformed message.
Try try_from(const bench::Fields& fields);
Tried tried_from(const bench::Fields& fields);

}  // namespace shunt::tune
