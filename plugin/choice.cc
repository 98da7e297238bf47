#include "plugin/choice.h"

#include <algorithm>

#include "plugin/abi.h"

namespace shunt::tuner {

bool may_follow(const Wish& wish, const CostTable& table, bool unsafe_allowed) {
  if (wish.empty() || !table.holds(wish.algorithm, wish.protocol)) return false;
  if (table.allows(wish.algorithm, wish.protocol)) return true;
  // LL128 is ruled out where 128-byte stores may tear, though its buffers and kernels are there.
  const bool has_ll128 = wish.algorithm == abi::kTree || wish.algorithm == abi::kRing;
  return unsafe_allowed && wish.protocol == abi::kLl128 && has_ll128 &&
         table.allows(wish.algorithm, abi::kSimple);
}

Wish choose(const Profile& profile, const Call& call, const CostTable& table, bool unsafe_allowed) {
  const std::vector<Rule>* const rules = profile.rules(call.function);
  if (rules == nullptr) return {};
  const auto rule = std::ranges::lower_bound(*rules, uint64_t{call.bytes}, {}, &Rule::to);
  if (rule == rules->end() || call.bytes < rule->from) return {};
  if (!may_follow(rule->wish, table, unsafe_allowed)) return {};
  Wish wish = rule->wish;
  // NCCL cuts other numbers down to the channels that the communicator has, but not CollNet's.
  if (wish.algorithm == abi::kCollnetDirect || wish.algorithm == abi::kCollnetChain) {
    wish.channels = 0;
  }
  return wish;
}

}  // namespace shunt::tuner
