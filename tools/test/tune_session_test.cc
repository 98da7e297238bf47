// A tuning run with real worker processes on the emulated driver and NCCL, with a tuner_caller.cc
// between: it finds what that file makes the truth, and what goes wrong ends it with a reason.
#include <cstdlib>

#include "plugin/abi.h"
#include "plugin/choice.h"
#include "plugin/profile_json.h"
#include "test/catch.h"
#include "tools/tune/run.h"
#include "tools/tune/session.h"

using namespace shunt;
using namespace shunt::tune;
namespace abi = shunt::tuner::abi;

namespace {

struct Ran {
  std::string failure;
  tuner::Profile profile;
  std::vector<std::string> problems;
  std::string lines;
};

Ran run(const char* fault, Plan plan) {
  setenv("LD_LIBRARY_PATH", TEST_FAKE_NVML_FOLDER ":" TEST_EMULATOR_FOLDER, 1);
  setenv("SHUNT_TEST_FAULT", fault, 1);
  bench::Job job;
  job.options.ranks = plan.ranks;
  job.options.sizes = {{plan.last, false}};
  job.worker = TEST_TUNE_WORKER;
  job.ld_preload = TEST_TUNER_CALLER;
  job.environment = {"NCCL_TUNER_PLUGIN=STATIC_PLUGIN"};
  job.timeout_s = 100;
  Ran ran;
  double clock = 0;
  ran.failure = run_session(
      job,
      [&](const Measure& measure, const SessionFacts& facts) {
        const auto points = measure_points(
            plan, measure, [&] { return clock += 1e-6; }, [](const Progress&) {},
            [](const Point&) {});
        for (const Point& point : points)
          for (const std::string& problem : point.problems) ran.problems.push_back(problem);
        ran.profile = profile_of(facts.machine, points);
      },
      [&](uint32_t, const std::string& line) { ran.lines += line + "\n"; });
  return ran;
}

Wish choice(const tuner::Profile& profile, int function, size_t bytes) {
  float costs[7][3];
  for (auto& row : costs)
    for (float& cost : row) cost = 1;
  return tuner::choose(profile, {function, bytes}, tuner::CostTable(&costs[0][0], 7, 3), false);
}

Plan small_plan() {
  Plan plan;
  plan.collectives = {Collective::kAllReduce};
  plan.first = 1024;
  plan.last = 65536;
  return plan;
}

}  // namespace

TEST_CASE("finds where which configuration is the fastest, for each collective") {
  Plan plan = small_plan();
  plan.collectives = {tuner::kCollectives[0], tuner::kCollectives[1], tuner::kCollectives[2]};
  plan.last = 1 << 20;
  const Ran ran = run("", plan);
  INFO(ran.lines);
  REQUIRE(ran.failure == "");
  CHECK(ran.problems.empty());
  for (const int function : {abi::kAllReduce, abi::kAllGather, abi::kReduceScatter}) {
    CHECK(choice(ran.profile, function, 512).empty());  // was not measured
    CHECK(choice(ran.profile, function, 1024) == Wish{abi::kRing, abi::kLl, 0});
    CHECK(choice(ran.profile, function, 16384) == Wish{abi::kRing, abi::kLl, 0});
    CHECK(choice(ran.profile, function, 65536).empty());  // NCCL's own choice is right
    CHECK(choice(ran.profile, function, 1 << 20) == Wish{abi::kRing, abi::kSimple, 8});
    CHECK(choice(ran.profile, function, (1 << 20) + 1).empty());
  }
  CHECK(ran.profile.machine.gpus == std::vector<std::string>{"Test GPU", "Test GPU"});
  CHECK(ran.profile.machine.ranks == 2);
  CHECK(tuner::parse_profile(tuner::to_json(ran.profile)) == ran.profile);
}

TEST_CASE("a configuration that gives wrong results is left out and reported") {
  const Ran ran = run("wrong-tree", small_plan());
  REQUIRE(ran.failure == "");
  REQUIRE_FALSE(ran.problems.empty());
  CHECK_THAT(ran.problems[0], ContainsSubstring("tree/LL: rank 0: element"));
}

TEST_CASE("an NCCL that does not ask the tuner") {
  CHECK_THAT(run("unasked", small_plan()).failure,
             ContainsSubstring("NCCL has not asked the tuner"));
}

TEST_CASE("ranks whose tables differ") {
  CHECK_THAT(run("differ", small_plan()).failure, ContainsSubstring("costs differ between ranks"));
}
