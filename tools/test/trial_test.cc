// A communicator on trial, with real worker processes on the emulated driver and NCCL: line, calls
// and counters agree, and where they do not, that is said. What is measured on emulated GPUs is
// chance.
#include "tools/trial/trial.h"

#include <algorithm>
#include <cstdlib>

#include "plugin/machine.h"
#include "plugin/profile_file.h"
#include "plugin/profile_json.h"
#include "plugin/test/samples.h"
#include "shim/engine/timed_sizes.h"
#include "test/catch.h"
#include "tools/tune/caps.h"

using namespace shunt;

namespace {

trial::Request request(std::vector<std::string> environment) {
  setenv("LD_LIBRARY_PATH", TEST_EMULATOR_FOLDER, 1);
  trial::Request request;
  request.worker = TEST_WORKER;
  request.ld_preload = TEST_LIBRARY;
  request.environment = std::move(environment);
  request.environment.push_back("SHUNT_ENABLE=on");
  request.sizes = trial::sizes_around_caps();
  return request;
}

uint64_t calls_up_to(uint64_t cap) {
  const std::vector<bench::Size> sizes = trial::sizes_around_caps();
  return static_cast<uint64_t>(
      std::ranges::count_if(sizes, [&](const bench::Size& s) { return s.value <= cap; }));
}

constexpr const char* kSlowNccl = "EMU_NCCL_US=3000";  // so that there is something to shunt

}  // namespace

TEST_CASE("log line, measured sizes and counters agree") {
  const trial::Outcome outcome = trial::run(request({kSlowNccl}));
  CHECK(outcome.failures == std::vector<std::string>{});
  INFO(outcome.said.off_reason);
  REQUIRE(outcome.said.on == true);
  CHECK(outcome.said.placement == "push");
  CHECK(outcome.said.cap_source == "measured");
  CHECK(std::ranges::find(kTimedSizes, outcome.said.cap) != std::end(kTimedSizes));
  CHECK(outcome.said.troubles.empty());
  CHECK(outcome.said.slab_bytes > outcome.said.cap);
  CHECK(outcome.said.host_bytes == 0);
  CHECK(outcome.said.prepared_ms > 0);
  // Every size up to the cap was timed, and won; the next one lost, unless it was the last.
  const auto& times = outcome.said.times;
  const auto wins = [](const bench::TimedSize& t) {
    return std::min(t.one_shot_us, t.two_shot_us) < t.nccl_us;
  };
  REQUIRE_FALSE(times.empty());
  for (size_t i = 0; i < times.size(); ++i) {
    CHECK(times[i].bytes == kTimedSizes[i]);
    if (times[i].bytes <= outcome.said.cap) CHECK(wins(times[i]));
  }
  CHECK(outcome.shunted == 2 * calls_up_to(outcome.said.cap));
  CHECK(outcome.forwarded ==
        2 * (trial::sizes_around_caps().size() - calls_up_to(outcome.said.cap)));
  for (const bench::Row& row : outcome.results.rows) CHECK(row.shunt.has_value());
}

TEST_CASE("P2P that loses data: the line says so, host memory serves") {
  const trial::Outcome outcome = trial::run(request({kSlowNccl, "EMU_DROP=0>1"}));
  CHECK(outcome.failures == std::vector<std::string>{});
  REQUIRE(outcome.said.on == true);
  CHECK(outcome.said.placement == "host");
  CHECK(outcome.said.host_bytes > outcome.said.cap);
  REQUIRE(outcome.said.troubles.size() == 1);
  CHECK_THAT(outcome.said.troubles[0], ContainsSubstring("push does not work: rank 1 (probe)"));
}

TEST_CASE("a library that does not do what its line says") {
  trial::Request r = request({"SHUNT_TEST_FAULT"});  // counts calls that it gives to NCCL
  r.ld_preload = std::string(TEST_FAULTY_LIBRARY) + ":" + TEST_LIBRARY;
  const trial::Outcome outcome = trial::run(r);
  REQUIRE_FALSE(outcome.failures.empty());
  CHECK_THAT(outcome.failures[0], ContainsSubstring("counted"));
}

TEST_CASE("a library that is off, and one that is not there") {
  const trial::Outcome off = trial::run(request({"SHUNT_ENABLE=off"}));
  CHECK(off.failures.empty());
  CHECK(off.said.on == false);
  CHECK_THAT(off.said.off_reason, ContainsSubstring("switched off"));
  CHECK(off.shunted == 0);
  trial::Request r = request({});
  r.ld_preload = "/nowhere/libnccl-shunt.so";
  const trial::Outcome none = trial::run(r);
  REQUIRE(none.failures.size() == 1);
  CHECK_THAT(none.failures[0], ContainsSubstring("said nothing"));
  CHECK_THAT(none.other_lines.at(0), ContainsSubstring("cannot be preloaded"));
}

TEST_CASE("caps for a profile, and the profile in their place") {
  const tuner::Folder folder;
  setenv("LD_LIBRARY_PATH", TEST_EMULATOR_FOLDER, 1);
  trial::Request r = request({kSlowNccl});
  r.sizes = {{8, false}};
  const std::string path = folder.file("profile.json");
  tuner::Profile profile = tuner::sample_profile();
  profile.machine = tuner::machine_facts();
  profile.machine.ranks = 2;
  profile.machine.nccl = trial::run(r).results.facts.nccl_version;
  tuner::write_profile_file(path, to_json(profile));
  std::string notes;
  profile.caps =
      tune::measure_caps(r, path, true, [&](const std::string& note) { notes += note + "\n"; });
  CHECK(notes == "");
  REQUIRE(profile.caps.size() == 3);
  CHECK(profile.caps[0].placement == "push");
  CHECK(profile.caps[1].placement == "pull");
  CHECK(profile.caps[2].placement == "host");
  CHECK(profile.caps[0].bytes > 0);
  tuner::write_profile_file(path, to_json(profile));

  const trial::Outcome outcome = trial::run(request({"SHUNT_PROFILE=" + path}));
  CHECK(outcome.failures.empty());
  CHECK(outcome.said.times.empty());
  CHECK(outcome.said.cap == profile.caps[0].bytes);
  CHECK(outcome.said.two_shot_from == profile.caps[0].two_shot_from);
  CHECK(outcome.said.cap_source == "of the profile");

  // Where P2P is off or refused there is nothing to measure it with.
  CHECK(tune::measure_caps(r, path, false, [&](const std::string& note) {
          notes += note + "\n";
        }).size() <= 1);
  r.environment.push_back("EMU_NO_P2P=*>*");
  profile.caps.clear();
  tuner::write_profile_file(path, to_json(profile));
  notes.clear();
  const auto caps =
      tune::measure_caps(r, path, true, [&](const std::string& note) { notes += note + "\n"; });
  REQUIRE(caps.size() == 1);
  CHECK(caps[0].placement == "host");
  CHECK_THAT(notes, ContainsSubstring("push: "));
}
