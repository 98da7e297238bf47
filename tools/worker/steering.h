// The inside of the tuner plugin that this program is to NCCL (NCCL_TUNER_PLUGIN=STATIC_PLUGIN
// looks for the interfaces among the program's own symbols): what the next calls are to be run as.
#pragma once

#include <cstdint>

#include "plugin/cost_table.h"

namespace shunt::tune {

// What NCCL asked since the last steer().
struct Asked {
  uint32_t times = 0;
  uint32_t ruled_out = 0;  // times that the wish could not be followed
  tuner::Wish cheapest;    // NCCL's own choice, at the last time
  uint64_t allowed = 0;    // bit algorithm * 3 + protocol
};

// From now on calls are run as `wish` says; empty: as NCCL wants. Returns what was asked before.
Asked steer(const tuner::Wish& wish, bool unsafe);

}  // namespace shunt::tune
