// The benchmark on the emulated driver and NCCL: right results pass, and every fault that
// faulty_library.cc can make is found. A checker that finds nothing in a broken library proves
// nothing about a good one.
#include <cstdlib>
#include <string>
#include <vector>

#include "test/catch.h"
#include "tools/bench/launcher.h"
#include "tools/bench/results.h"
#include "tools/bench/text.h"

using namespace shunt;
using namespace shunt::bench;

namespace {

struct Outcome {
  std::string end;                        // of the job
  std::vector<std::string> row_failures;  // of all cases
  Results results;
};

Outcome run(const char* fault, Options options) {
  setenv("LD_LIBRARY_PATH", TEST_EMULATOR_FOLDER, 1);
  setenv("SHUNT_TEST_FAULT", fault, 1);
  Job job{options, TEST_WORKER, TEST_FAULTY_LIBRARY, 30};
  if (std::string(fault) == "hang") job.timeout_s = 5;
  Collector collector(options, static_cast<uint32_t>(ranks_by_worker(options).size()));
  const std::string end = run_job(
      job, {[&](uint32_t worker, const Fields& message) { collector.message(worker, message); },
            [&](uint32_t worker, const std::string& line) { collector.error_line(worker, line); }});
  Outcome outcome{end, {}, collector.results()};
  for (const Row& row : outcome.results.rows) {
    for (std::string& failure : row.failures(options)) outcome.row_failures.push_back(failure);
  }
  return outcome;
}

Options small(Mode mode) {
  Options options;
  options.sizes = parse_sizes("7e,256");
  options.modes = {mode};
  options.places = {Place::kOutOfPlace};
  options.iterations = 2;
  options.eager_calls = 20;
  options.graph_calls = 5;
  options.replays = 2;
  return options;
}

}  // namespace

TEST_CASE("a faultless library passes everything, and its counters equal the calls") {
  for (const Launch launch : {Launch::kProcesses, Launch::kThreads, Launch::kOneThread}) {
    Options options = small(Mode::kEager);
    options.modes = {Mode::kEager, Mode::kGraph};
    options.places = {Place::kOutOfPlace, Place::kInPlace};
    options.types = parse_types("bf16,float,int8,e4m3");
    options.ops = parse_ops("sum,avg,max");
    options.sizes = parse_sizes("0e,1e,257e,4K");
    options.launch = launch;
    options.misalign = true;
    options.alternate = true;
    options.cold_bytes = 64 << 10;
    const Outcome outcome = run("", options);
    CAPTURE(name_of(launch));
    CHECK(outcome.end == "");
    CHECK(outcome.row_failures == std::vector<std::string>{});
    for (const Row& row : outcome.results.rows) {
      REQUIRE(row.shunt);
      CHECK(row.shunt->checked > 0);
    }
    // This library counts every call as shunted, empty ones too.
    for (const Calls& calls : outcome.results.calls) {
      uint64_t made = 0;
      for (const auto& [bytes, count] : calls.by_bytes) made += count;
      REQUIRE(calls.counters);
      CHECK(calls.counters->at("shunted") == made);
    }
  }
}

TEST_CASE("every fault is found, in eager calls and in graphs") {
  struct Fault {
    const char* name;
    const char* text;
  };
  const Fault faults[] = {{"last_byte", "wrong; element 6"},
                          {"after", "after the end of the receive buffer"},
                          {"before", "before the receive buffer"},
                          {"input", "changed the send buffer"},
                          {"refuse", "NCCL returned 0, with the library 4"}};
  for (const Mode mode : {Mode::kEager, Mode::kGraph}) {
    for (const Fault& fault : faults) {
      const Outcome outcome = run(fault.name, small(mode));
      CAPTURE(fault.name, name_of(mode));
      CHECK(outcome.end == "");
      REQUIRE_FALSE(outcome.row_failures.empty());
      CHECK_THAT(join(outcome.row_failures, "\n"), ContainsSubstring(fault.text));
    }
  }
}

TEST_CASE("a fault that only spoils one rank also shows as different bits") {
  const Outcome outcome = run("last_byte", small(Mode::kGraph));
  CHECK_FALSE(outcome.results.rows[0].shunt->ranks_agree);
  CHECK(outcome.results.rows[0].nccl->ranks_agree);
}

TEST_CASE("one rank that is refused alone ends the job at once") {
  for (const Mode mode : {Mode::kEager, Mode::kGraph}) {
    CHECK_THAT(run("refuse_alone", small(mode)).end, ContainsSubstring("on another rank"));
  }
}

TEST_CASE("counters that are off by one are found") {
  const Outcome outcome = run("miscount", small(Mode::kEager));
  CHECK(outcome.end == "");
  CHECK_FALSE(count_failures(outcome.results.calls, 1 << 20).empty());
}

TEST_CASE("a rank that dies or hangs ends the job, with its name and phase") {
  for (const Launch launch : {Launch::kProcesses, Launch::kThreads}) {
    Options options = small(Mode::kEager);
    options.launch = launch;
    Outcome outcome = run("die", options);
    CHECK_THAT(outcome.end,
               ContainsSubstring("rank 0 (in: eager") && ContainsSubstring("signal 6"));
    outcome = run("hang", options);
    CHECK_THAT(outcome.end, ContainsSubstring("not finished after 5 s") &&
                                ContainsSubstring("rank 0 in: eager"));
  }
}
