// The decision of the plugin: a pure function of the profile and of what NCCL tells every rank
// alike.
#pragma once

#include <cstddef>

#include "plugin/cost_table.h"
#include "plugin/profile.h"

namespace shunt::tuner {

struct Call {
  int function = 0;  // ncclFunc_t
  size_t bytes = 0;
};

// `unsafe_allowed`: LL128 may be used where NCCL's table rules it out. Nothing else that the table
// rules out is ever asked for: it has no connections, or no kernel.
Wish choose(const Profile& profile, const Call& call, const CostTable& table, bool unsafe_allowed);

// Whether a wish may be followed at all.
bool may_follow(const Wish& wish, const CostTable& table, bool unsafe_allowed);

}  // namespace shunt::tuner
