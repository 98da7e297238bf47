// What runs in place of each hooked NCCL function. Overloads of on_call by hook; the generic one is for
// the operations that are always forwarded.
#pragma once

#include <nccl.h>

#include "shim/engine/nccl_library.h"

namespace shunt {

template <int kHook>
struct HookTag {};

// ncclAllReduce calls that were handed to our kernel or to NCCL, captured ones once. Process-wide.
struct Counters {
  unsigned long long shunted;
  unsigned long long forwarded;
  unsigned long long communicators;  // that shunt
};
Counters counters();

}  // namespace shunt
