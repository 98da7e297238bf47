#include "plugin/choice.h"

#include <algorithm>

#include "plugin/abi.h"

namespace shunt::tuner {
namespace {

// NCCL makes an algorithm a thousand times as dear where it would cost precision (8-bit floats in a
// ring of more than 8 ranks). The type is not told to a plugin: a price that no time explains is.
bool avoided(const Wish& wish, const CostTable& table) {
  constexpr float kNoTime = 100;
  const Wish own = table.cheapest();
  return table.allows(wish.algorithm, wish.protocol) &&
         table.cost(wish.algorithm, wish.protocol) >
             kNoTime * table.cost(own.algorithm, own.protocol);
}

}  // namespace

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
  if (!may_follow(rule->wish, table, unsafe_allowed) || avoided(rule->wish, table)) return {};
  Wish wish = rule->wish;
  // NCCL cuts other numbers down to the channels that the communicator has, but not CollNet's.
  if (wish.algorithm == abi::kCollnetDirect || wish.algorithm == abi::kCollnetChain) {
    wish.channels = 0;
  }
  return wish;
}

}  // namespace shunt::tuner
