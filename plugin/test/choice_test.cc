#include "plugin/choice.h"

#include <random>

#include "plugin/abi.h"
#include "plugin/test/samples.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

struct Table {
  float costs[7][3];
  Table() {
    for (auto& row : costs)
      for (float& cost : row) cost = 3;
  }
  CostTable view() { return {&costs[0][0], 7, 3}; }
};

Wish ask(const Profile& profile, int function, size_t bytes, bool unsafe = false,
         Table table = {}) {
  return choose(profile, {function, bytes}, table.view(), unsafe);
}

const Wish kNothing;

}  // namespace

TEST_CASE("a rule holds from its first byte to its last") {
  const Profile profile = sample_profile();
  const Wish small{abi::kRing, abi::kLl, 0}, large{abi::kTree, abi::kSimple, 4};
  CHECK(ask(profile, abi::kAllReduce, 0) == kNothing);
  CHECK(ask(profile, abi::kAllReduce, 1) == small);
  CHECK(ask(profile, abi::kAllReduce, 1024) == small);
  CHECK(ask(profile, abi::kAllReduce, 1025) == kNothing);
  CHECK(ask(profile, abi::kAllReduce, 4095) == kNothing);
  CHECK(ask(profile, abi::kAllReduce, 4096) == large);
  CHECK(ask(profile, abi::kAllReduce, 8192) == large);
  CHECK(ask(profile, abi::kAllReduce, 8193) == kNothing);
  CHECK(ask(profile, abi::kAllReduce, SIZE_MAX) == kNothing);
}

TEST_CASE("each collective has its own rules, and unknown ones none") {
  const Profile profile = sample_profile();
  CHECK(ask(profile, abi::kAllGather, 16) == Wish{abi::kRing, abi::kLl128, 0});
  CHECK(ask(profile, abi::kAllGather, 1024) == kNothing);
  CHECK(ask(profile, abi::kReduceScatter, 1024) == kNothing);
  for (const int function : {-1, 0, 1, 5, 6, 7, 8, 9, 10, 11, 1 << 30}) {
    CHECK(ask(profile, function, 1024) == kNothing);
  }
  CHECK(ask(Profile{}, abi::kAllReduce, 1024) == kNothing);
}

TEST_CASE("what NCCL rules out is not asked for") {
  const Profile profile = sample_profile();
  Table table;
  table.costs[abi::kRing][abi::kLl] = abi::kIgnore;
  CHECK(ask(profile, abi::kAllReduce, 8, false, table) == kNothing);
  CHECK(ask(profile, abi::kAllReduce, 8, true, table) ==
        kNothing);  // LL is not what `unsafe` is about
  CHECK(ask(profile, abi::kAllReduce, 4096, false, table).algorithm == abi::kTree);
}

TEST_CASE("LL128 that is ruled out needs the user's words, and an algorithm that works here") {
  const Profile profile = sample_profile();
  Table table;
  table.costs[abi::kRing][abi::kLl128] = abi::kIgnore;
  CHECK(ask(profile, abi::kAllGather, 16, false, table) == kNothing);
  CHECK(ask(profile, abi::kAllGather, 16, true, table) == Wish{abi::kRing, abi::kLl128, 0});
  table.costs[abi::kRing][abi::kSimple] = abi::kIgnore;  // no ring at all
  CHECK(ask(profile, abi::kAllGather, 16, true, table) == kNothing);

  Profile nvls = profile;
  nvls.all_gather[0].wish.algorithm = abi::kNvls;
  Table without;
  without.costs[abi::kNvls][abi::kLl128] = abi::kIgnore;
  CHECK(ask(nvls, abi::kAllGather, 16, true, without) == kNothing);
}

TEST_CASE("an entry that NCCL avoids for another reason than time") {
  const Profile profile = sample_profile();
  Table table;
  table.costs[abi::kRing][abi::kLl] = 3 * 90;  // slow, says NCCL: the profile knows better
  CHECK_FALSE(ask(profile, abi::kAllReduce, 8, false, table).empty());
  for (float& cost : table.costs[abi::kRing]) cost = 3 * 1024;  // 8-bit floats, more than 8 ranks
  CHECK(ask(profile, abi::kAllReduce, 8, false, table) == kNothing);
  CHECK_FALSE(ask(profile, abi::kAllReduce, 4096, false, table).empty());  // a tree
}

TEST_CASE("a table without the row or column") {
  Profile profile = sample_profile();
  profile.all_reduce[0].wish.algorithm = abi::kPat;
  Table table;
  CHECK(choose(profile, {abi::kAllReduce, 8}, CostTable(&table.costs[0][0], 6, 3), true) ==
        kNothing);
  CHECK(choose(profile, {abi::kAllReduce, 8}, CostTable(nullptr, 7, 3), true) == kNothing);
}

TEST_CASE("NCCL does not limit CollNet's channels, so they are not asked for") {
  Profile profile = sample_profile();
  profile.all_reduce[1].wish = {abi::kCollnetChain, abi::kSimple, 4};
  CHECK(ask(profile, abi::kAllReduce, 4096) == Wish{abi::kCollnetChain, abi::kSimple, 0});
}

TEST_CASE("random profiles and tables: every wish is legal, and is the rule's") {
  std::mt19937_64 random(3);
  size_t followed = 0, ruled_out = 0;
  for (int round = 0; round < 3000; ++round) {
    Profile profile;
    uint64_t at = random() % 100;
    for (size_t rules = random() % 6; rules > 0; --rules) {
      Rule rule;
      rule.from = at;
      rule.to = at + random() % 1000;
      rule.wish = {static_cast<int>(random() % 7), static_cast<int>(random() % 3),
                   static_cast<int>(random() % 5)};
      at = rule.to + 1 + random() % 500;
      profile.all_reduce.push_back(rule);
    }
    Table table;
    for (auto& row : table.costs)
      for (float& cost : row)
        if (random() % 3 == 0) cost = abi::kIgnore;
    const size_t bytes = random() % 4000;
    const Wish wish = ask(profile, abi::kAllReduce, bytes, false, table);
    const Rule* holder = nullptr;  // found by looking at all of them
    for (const Rule& rule : profile.all_reduce)
      if (bytes >= rule.from && bytes <= rule.to) holder = &rule;
    const bool possible =
        holder != nullptr && table.costs[holder->wish.algorithm][holder->wish.protocol] >= 0;
    REQUIRE(wish.empty() == !possible);
    if (holder != nullptr && !possible) ++ruled_out;
    if (wish.empty()) continue;
    ++followed;
    REQUIRE(wish.algorithm == holder->wish.algorithm);
    REQUIRE(wish.protocol == holder->wish.protocol);
  }
  CHECK(followed > 300);
  CHECK(ruled_out > 100);
}
