#include "plugin/cost_table.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "plugin/abi.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

// NCCL's own search, written apart: the first of the smallest costs that are not negative.
Wish nccl_takes(const std::vector<float>& costs, int protocols) {
  float least = 3600000000.0f;
  Wish best;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i] == -1.0f || !(costs[i] >= 0) || !(costs[i] < least)) continue;
    least = costs[i];
    best = {static_cast<int>(i) / protocols, static_cast<int>(i) % protocols, 0};
  }
  return best;
}

}  // namespace

TEST_CASE("whatever the costs are, a preferred entry is what NCCL takes, and no ban is lifted") {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<float> costs(21);
    for (float& cost : costs) {
      const float kinds[] = {-1, 0, 1, static_cast<float>(random() % 1000) / 7, 1e9f};
      cost = kinds[random() % 5];
    }
    const std::vector<float> before = costs;
    CostTable table(costs.data(), 7, 3);
    REQUIRE(table.cheapest() == nccl_takes(before, 3));
    const int a = static_cast<int>(random() % 7), p = static_cast<int>(random() % 3);
    table.prefer(a, p);
    REQUIRE(nccl_takes(costs, 3) == Wish{a, p, 0});
    for (int i = 0; i < 21; ++i) {
      if (i == a * 3 + p) continue;
      REQUIRE((before[i] == costs[i] || (before[i] == 0 && costs[i] == 1)));
    }
  }
}

TEST_CASE("tables of other sizes, and none at all") {
  float costs[6][3];
  for (auto& row : costs)
    for (float& cost : row) cost = 1;
  CostTable old(&costs[0][0], 6, 3);
  CHECK(old.allows(5, 2));
  CHECK_FALSE(old.holds(6, 0));  // PAT: NCCL up to 2.23 has no such row
  CHECK_FALSE(old.holds(0, 3));
  CHECK_FALSE(old.holds(-1, 0));
  old.prefer(6, 0);  // must not write behind the table
  CHECK(old.cheapest() == Wish{0, 0, 0});

  CHECK_FALSE(CostTable(nullptr, 7, 3).holds(0, 0));
  CHECK_FALSE(CostTable(&costs[0][0], 0, 3).holds(0, 0));
  CHECK_FALSE(CostTable(&costs[0][0], 7, 1 << 20).holds(0, 0));
  CHECK_FALSE(CostTable(&costs[0][0], -7, -3).holds(0, 0));
}

TEST_CASE("what is not a cost is not allowed") {
  float costs[3] = {std::numeric_limits<float>::quiet_NaN(), -2, -1};
  CostTable table(costs, 1, 3);
  for (int p = 0; p < 3; ++p) CHECK_FALSE(table.allows(0, p));
  CHECK(table.cheapest().empty());
}
