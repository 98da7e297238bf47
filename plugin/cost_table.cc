#include "plugin/cost_table.h"

namespace shunt::tuner {

CostTable::CostTable(float* costs, int algorithms, int protocols)
    : costs_(costs), algorithms_(algorithms), protocols_(protocols) {
  constexpr int kMost = 64;  // far above any NCCL's: a larger number is another ABI's argument
  if (costs == nullptr || algorithms < 1 || protocols < 1 || algorithms > kMost ||
      protocols > kMost) {
    algorithms_ = protocols_ = 0;
  }
}

bool CostTable::holds(int algorithm, int protocol) const {
  return algorithm >= 0 && protocol >= 0 && algorithm < algorithms_ && protocol < protocols_;
}

bool CostTable::allows(int algorithm, int protocol) const {
  // Not `cost != -1`: NCCL passes over every negative cost, and a NaN is never the smallest.
  return holds(algorithm, protocol) && cost(algorithm, protocol) >= 0;
}

Wish CostTable::cheapest() const {
  Wish best;
  float least = 0;
  for (int a = 0; a < algorithms_; ++a) {
    for (int p = 0; p < protocols_; ++p) {
      if (!allows(a, p) || (!best.empty() && !(cost(a, p) < least))) continue;
      best = {a, p, 0};
      least = cost(a, p);
    }
  }
  return best;
}

void CostTable::prefer(int algorithm, int protocol) {
  if (!holds(algorithm, protocol)) return;
  costs_[index(algorithm, protocol)] = 0;
  for (int a = 0; a < algorithms_; ++a) {
    for (int p = 0; p < protocols_; ++p) {
      // Of equal costs NCCL takes the first: another zero would win by its place.
      const bool other = a != algorithm || p != protocol;
      if (other && cost(a, p) == 0) costs_[index(a, p)] = 1;
    }
  }
}

}  // namespace shunt::tuner
