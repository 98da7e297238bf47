// The search, its rules, messages and reports, with figures that are made up.
#include <cmath>

#include "plugin/abi.h"
#include "plugin/profile_json.h"
#include "plugin/test/samples.h"
#include "test/catch.h"
#include "tools/tune/messages.h"
#include "tools/tune/report.h"
#include "tools/tune/rules.h"
#include "tools/tune/run.h"
#include "tools/tune/session.h"

using namespace shunt;
using namespace shunt::tune;
namespace abi = shunt::tuner::abi;

namespace {

const Wish kRingLl{abi::kRing, abi::kLl, 0}, kRingSimple{abi::kRing, abi::kSimple, 0},
    kTreeLl{abi::kTree, abi::kLl, 0};

uint64_t bit(const Wish& wish) { return uint64_t{1} << (wish.algorithm * 3 + wish.protocol); }

// NCCL chooses ring/Simple, 10 us; everything else as `times` says.
struct World {
  std::map<std::string, double> times;
  std::vector<Try> tries;
  uint64_t allowed = bit(kRingLl) | bit(kRingSimple) | bit(kTreeLl);
  int confirmations_lost_from = 1000, confirmation_lost = 1000;

  Measure measure() {
    return [this](const Try& t) {
      tries.push_back(t);
      Outcome outcome{Status::kMeasured, 10, "", kRingSimple, allowed};
      if (t.wish.empty()) return outcome;
      if ((allowed & bit(t.wish)) == 0 && !t.unsafe) outcome.status = Status::kRuledOut;
      const auto time = times.find(to_text(t.wish));
      outcome.us = time == times.end() ? 20 : time->second;
      if (outcome.us < 0) outcome.problem = "rank 1: element 3";
      int of_this = 0;
      for (const Try& before : tries) of_this += before.wish == t.wish;
      if (of_this > confirmations_lost_from || of_this == confirmation_lost) outcome.us = 11;
      return outcome;
    };
  }
  bool tried(const Wish& wish) const {
    for (const Try& t : tries)
      if (t.wish == wish) return true;
    return false;
  }
};

Point explored(World& world, uint64_t bytes = 1024, Limits limits = {},
               const Point* smaller = nullptr) {
  return explore(world.measure(), Collective::kAllReduce, bytes, smaller, limits);
}

Point point(uint64_t bytes, const Wish& best) {
  Point p;
  p.bytes = bytes;
  p.best = best;
  p.best_us = 1;
  p.default_us = 2;
  return p;
}

}  // namespace

TEST_CASE("the fastest configuration wins if it wins again") {
  World world{{{"ring/LL", 6}, {"tree/LL", 7}}, {}};
  const Point found = explored(world);
  CHECK(found.best == kRingLl);
  CHECK(found.best_us == 6);
  CHECK(found.default_us == 10);
  CHECK(found.default_wish == kRingSimple);
  CHECK(found.tried == std::map<std::string, double>{{"ring/LL", 6}, {"tree/LL", 7}});

  world = {{{"ring/LL", 6}}, {}};
  world.confirmations_lost_from = 2;  // good once, when it is looked for, and once more
  CHECK(explored(world).best.empty());

  world = {{{"ring/LL", 6}}, {}};
  world.confirmation_lost = 3;  // twice of three times is not enough
  CHECK(explored(world).best.empty());
}

TEST_CASE("a small gain is none") {
  World world{{{"ring/LL", 9.8}}, {}};
  CHECK(explored(world).best.empty());
  CHECK(explored(world).best_us == 10);
  world = {{{"ring/LL", 9.6}}, {}};
  CHECK(explored(world).best == kRingLl);
}

TEST_CASE("channels are tried where they can matter, for the best entry") {
  World world{{{"ring/LL", 6}, {"ring/LL/8", 4}, {"tree/LL", 15}}, {}};
  CHECK(explored(world, 1024).best == kRingLl);
  CHECK_FALSE(world.tried({abi::kRing, abi::kLl, 8}));
  CHECK(explored(world, 1 << 20).best == Wish{abi::kRing, abi::kLl, 8});
  CHECK_FALSE(world.tried({abi::kTree, abi::kLl, 8}));
  World own{{{"ring/Simple/16", 8}}, {}};  // NCCL's own choice with other channels
  CHECK(explored(own, 1 << 20).best == Wish{abi::kRing, abi::kSimple, 16});
}

TEST_CASE("wrong results and what is ruled out are no candidates") {
  World world{{{"ring/LL", -1}, {"tree/LL", 7}}, {}};
  const Point found = explored(world);
  CHECK(found.best == kTreeLl);
  REQUIRE(found.problems.size() == 1);
  CHECK(found.problems[0] == "ring/LL: rank 1: element 3");

  World safe{{{"ring/LL128", 1}}, {}};
  CHECK(explored(safe).best.empty());
  CHECK_FALSE(safe.tried({abi::kRing, abi::kLl128, 0}));
  Limits limits;
  limits.unsafe = true;
  CHECK(explored(safe, 1024, limits).best == Wish{abi::kRing, abi::kLl128, 0});
}

TEST_CASE("what was hopeless at the next smaller size is not tried again") {
  World world{{{"ring/LL", 6}}, {}};
  Point smaller = point(512, kRingLl);
  smaller.tried = {{"tree/LL", 4.5}, {"ring/LL", 1}};
  explored(world, 1024, {}, &smaller);
  CHECK_FALSE(world.tried(kTreeLl));
  CHECK(world.tried(kRingLl));
}

TEST_CASE("an old NCCL, or wrong results of its own choice, end the run") {
  const auto with = [](Status status, const char* problem) {
    explore(
        [&](const Try&) {
          return Outcome{status, 1, problem, kRingLl, 1};
        },
        Collective::kAllReduce, 8, nullptr, {});
  };
  CHECK_THROWS_AS(with(Status::kUnasked, ""), std::runtime_error);
  CHECK_THROWS_AS(with(Status::kMeasured, "rank 0: wrong"), std::runtime_error);
  CHECK_NOTHROW(with(Status::kMeasured, ""));
}

TEST_CASE("graphs hold fewer calls where calls take long") {
  CHECK(calls_for(0) == 50);
  CHECK(calls_for(10) == 50);
  CHECK(calls_for(150) == 10);
  CHECK(calls_for(1e9) == 1);
}

TEST_CASE("rules reach to the middle between two winners, and not towards NCCL's own choice") {
  const auto rules = rules_of({point(1024, {}), point(2048, kRingLl), point(4096, kRingLl),
                               point(8192, kTreeLl), point(16384, {}), point(32768, kRingLl)});
  REQUIRE(rules.size() == 3);
  CHECK((rules[0].from == 2048 && rules[0].to == 5792 && rules[0].wish == kRingLl));
  CHECK((rules[1].from == 5793 && rules[1].to == 8192 && rules[1].wish == kTreeLl));
  CHECK((rules[2].from == 32768 && rules[2].to == 32768));
  CHECK(rules_of({}).empty());
}

TEST_CASE("sizes that were not measured for lack of time") {
  const auto near = rules_of({point(1024, kRingLl), point(4096, kRingLl)});
  REQUIRE(near.size() == 1);
  CHECK((near[0].from == 1024 && near[0].to == 4096));
  const auto far = rules_of({point(1024, kRingLl), point(8192, kRingLl)});
  REQUIRE(far.size() == 2);
  CHECK((far[0].to == 1024 && far[1].from == 8192));
}

TEST_CASE("the order of sizes looks at the whole range first") {
  CHECK(order_of_sizes(8, 64) == std::vector<uint64_t>{8, 32, 16, 64});
  CHECK(order_of_sizes(8, 8) == std::vector<uint64_t>{8});
  CHECK(order_of_sizes(uint64_t{1} << 62, UINT64_MAX).size() == 2);
}

TEST_CASE("a run ends when its time is up, and all-reduce has the most of it") {
  for (const double seconds : {1.0, 1000.0}) {
    World world{{{"ring/LL", 6}}, {}};
    double clock = 0;
    const Measure slow = [&, inner = world.measure()](const Try& t) {
      clock += 0.05;
      return inner(t);
    };
    Plan plan;
    plan.collectives = {Collective::kAllReduce, Collective::kAllGather};
    plan.seconds = seconds;
    const auto points = measure_points(
        plan, slow, [&] { return clock; }, [](const Progress&) {}, [](const Point&) {});
    size_t reduces = 0;
    for (const Point& p : points) reduces += p.collective == Collective::kAllReduce;
    CHECK(reduces > 0);
    CHECK(points.size() - reduces > 0);
    if (seconds > 100) {
      CHECK(points.size() == 2 * 26);
    } else {
      CHECK(points.size() < 20);
      CHECK(reduces > points.size() - reduces);
      CHECK(clock < seconds + 2 * 0.05 * 12);  // the points that were begun
    }
  }
}

TEST_CASE("messages keep what they are given") {
  const Try t{Collective::kAllGather, 77, {abi::kRing, abi::kLl, 4}, 3, 2, 1, true};
  const Try again = try_from(bench::Fields::parse(to_fields(t).line()));
  CHECK((again.collective == t.collective && again.bytes == 77 && again.wish == t.wish));
  CHECK((again.calls == 3 && again.warmups == 2 && again.replays == 1 && again.unsafe));
  CHECK(try_from(to_fields(Try{})).wish.empty());

  const Tried tried{1, Status::kRuledOut, {1.5, 2}, "element 3", kRingLl, 0x30};
  const Tried back = tried_from(bench::Fields::parse(to_fields(tried).line()));
  CHECK((back.rank == 1 && back.status == Status::kRuledOut && back.us == tried.us));
  CHECK((back.problem == "element 3" && back.cheapest == kRingLl && back.allowed == 0x30));
  bench::Fields bad = to_fields(t);
  bad.set("collective", uint64_t{9});
  CHECK_THROWS_AS(try_from(bad), std::runtime_error);
}

TEST_CASE("the slowest rank counts, and ranks must have been asked alike") {
  Tried a{0, Status::kMeasured, {1, 5, 3}, "", kRingLl, 7},
      b{1, Status::kMeasured, {2, 1, 9}, "", kRingLl, 7};
  CHECK(together({a, b}).us == 5);
  b.problem = "element 1";
  CHECK(together({a, b}).problem == "rank 1: element 1");
  b.allowed = 6;
  CHECK_THROWS_AS(together({a, b}), std::runtime_error);
  b = a;
  b.status = Status::kRuledOut;
  CHECK_THROWS_AS(together({a, b}), std::runtime_error);
  CHECK_THROWS_AS(together({}), std::runtime_error);
}

TEST_CASE("a profile is shown and compared") {
  const tuner::Profile profile = tuner::sample_profile();
  const std::string text = show(profile);
  CHECK_THAT(text, ContainsSubstring("link 0-1    PHB p2p"));
  CHECK_THAT(text, ContainsSubstring("tree/Simple/4"));
  CHECK_THAT(text, ContainsSubstring("NCCL's own choice everywhere"));
  CHECK(diff(profile, profile) == "");
  tuner::Profile other = profile;
  other.all_reduce[0].us = 1;  // measured again: no difference
  CHECK(diff(profile, other) == "");
  other.machine.driver = "581";
  other.all_reduce[0].to = 2047;
  CHECK_THAT(diff(profile, other), ContainsSubstring("machine: driver 580.1, here 581"));
  other.caps = {{"push", 65536, 4096}};
  CHECK_THAT(show(other), ContainsSubstring("push: 64K are shunted, in two shots from 4K"));
  CHECK_THAT(diff(profile, other), ContainsSubstring("cap push: no cap; push: 64K are shunted"));
  CHECK_THAT(diff(profile, other), ContainsSubstring("all-reduce 1025 to 2047: default, ring/LL"));
}

TEST_CASE("the profile of points can be read again") {
  const auto profile = profile_of(tuner::sample_machine(), {point(16, kRingLl), point(8, kRingLl)});
  REQUIRE(profile.all_reduce.size() == 1);
  CHECK((profile.all_reduce[0].from == 8 && profile.all_reduce[0].to == 16));
  CHECK(tuner::parse_profile(tuner::to_json(profile)) == profile);
}
