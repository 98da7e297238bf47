// What was made of each all-reduce: for the counters at exit, and for a communicator's last calls (CallRing).
#pragma once

#include <nccl.h>

#include <cstddef>

namespace shunt {

class Communicator;

// ncclAllReduce calls that were handed to our kernel or to NCCL, captured ones once. Process-wide.
struct Counters {
  unsigned long long shunted;
  unsigned long long forwarded;
  unsigned long long communicators;  // that shunt
};
Counters counters();

// Once for each all-reduce, in the order of a communicator's calls; null: unknown. `count` in elements.
void count_call(Communicator* communicator, size_t count, ncclDataType_t type, ncclRedOp_t op, bool shunted) noexcept;

}  // namespace shunt
