// Jobs of the mixed program (mixed_program.h), each under its own hostile memory and through the library
// that users preload. A job runs several programs, one after the other, each with communicators of its own:
// so most of the time goes into programs and not into starting processes and probing.
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "test/cases/job.h"
#include "test/cases/mixed_program.h"

using namespace cases;

namespace {

enum Flag { kShunted, kForwarded, kPrograms };  // shared.flags: sums over all ranks

using Seeds = std::vector<int>;

int number_or(const char* variable, int otherwise) {
  return std::getenv(variable) != nullptr ? number_of(variable) : otherwise;
}

Seeds parse_seeds(const char* text) {
  Seeds seeds;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) seeds.push_back(std::stoi(part));
  return seeds;
}

std::string text_of(const Seeds& seeds) {
  std::ostringstream text;
  for (size_t i = 0; i < seeds.size(); ++i) text << (i == 0 ? "" : ",") << seeds[i];
  return text.str();
}

}  // namespace

TEST_CASE("job: mixed program", "[.]") {
  const Rank rank;
  const auto cap = static_cast<size_t>(number_of("SHUNT_CAP"));
  const int steps = number_of("CASES_STEPS"), slowness = number_of("CASES_CLOCK_SLOWER");
  int slot = 0;
  for (const int seed : parse_seeds(std::getenv("CASES_PROGRAMS"))) {
    mixed::Program program(rank, static_cast<uint64_t>(seed), cap, slot++, slowness);
    program.run(steps);
    rank.shared.flags[kShunted].fetch_add(program.shunted());
    rank.shared.flags[kForwarded].fetch_add(program.forwarded());
    rank.shared.flags[kPrograms].fetch_add(1);
  }
}

namespace {

// Programs that share a job share its settings: seeds that are equal modulo this.
constexpr int kSettings = 12;
// On a loaded machine a kernel of eight ranks under hostile memory may be half a minute late. With the clock
// slowed down, a deadline of the library that is met is a hang and no load.
constexpr int kClockSlower = 100;

Environment settings_of(const Seeds& seeds) {
  constexpr const char* kCaps[] = {"2048", "4096", "4096", "16384"};
  constexpr const char* kDelays[] = {"*:0", "*:300", "0:2000"};
  const auto first = static_cast<size_t>(seeds.front());
  const int slower = on_gpus() ? 1 : kClockSlower;
  Environment all = {{"CASES_PROGRAMS", text_of(seeds)},
                     {"CASES_STEPS", std::to_string(number_or("CASES_STEPS", 25))},
                     {"CASES_CLOCK_SLOWER", std::to_string(slower)},
                     {"SHUNT_CAP", kCaps[first % 4]}};
  if (on_gpus()) return all;
  all["LD_PRELOAD"] = std::string(CASES_PRELOAD) + ":" + CASES_SLOW_CLOCK;
  all["EMU_HOSTILE"] = std::to_string(first);
  all["EMU_KERNEL_DELAY_US"] = kDelays[first % 3];
  return all;
}

struct Tally {
  unsigned long long jobs = 0, programs = 0, shunted = 0, forwarded = 0;
  size_t wrong = 0;
};

void run_job(int ranks, const Seeds& seeds, Tally& tally) {
  const int limit = 60 + 60 * static_cast<int>(seeds.size());
  JobOptions options{.ranks = ranks};
  options.environment = settings_of(seeds);
  options.limit_seconds = limit;
  Job job("mixed program", options);
  std::string trouble = job.trouble(limit);
  const std::string output = job.output();
  const auto called = [&](Flag flag) -> unsigned long long { return job.shared().flags[flag]; };
  const auto more = [&](bool wrong, const std::string& what) {
    if (trouble.empty() && wrong) trouble = what + "\n" + output;
  };
  more(called(kPrograms) != seeds.size() * static_cast<size_t>(ranks), "programs left out");
  more(total(output, "shunted") != called(kShunted), "calls on the wrong path");
  more(total(output, "forwarded") != called(kForwarded), "calls on the wrong path");
  more(count_of(output, "emulated cuda:") != 0, "misuse of the driver");
  more(!lines_of(output, "warning").empty() || !lines_of(output, "error").empty(), "complaints");
  ++tally.jobs;
  tally.programs += seeds.size();
  tally.shunted += called(kShunted);
  tally.forwarded += called(kForwarded);
  if (trouble.empty()) return;
  ++tally.wrong;
  FAIL_CHECK("CASES_RANKS=" << ranks << " CASES_PROGRAMS=" << text_of(seeds) << ": " << trouble);
}

void show(const Tally& tally) {
  std::printf("mixed program: %llu programs in %llu jobs, %llu calls shunted, %llu forwarded, %zu wrong\n",
              tally.programs, tally.jobs, tally.shunted, tally.forwarded, tally.wrong);
  std::fflush(stdout);
}

// Seeds [first, first + count), at most `together` of them a job.
std::vector<Seeds> jobs_of(int first, int count, int together) {
  std::vector<Seeds> jobs;
  for (int begin = first; begin < first + count; begin += kSettings * together) {
    const int end = std::min(first + count, begin + kSettings * together);
    for (int residue = begin; residue < std::min(end, begin + kSettings); ++residue) {
      jobs.emplace_back();
      for (int seed = residue; seed < end; seed += kSettings) jobs.back().push_back(seed);
    }
  }
  return jobs;
}

void run_jobs(const std::vector<int>& ranks, const std::vector<Seeds>& jobs) {
  constexpr size_t kEnough = 10;  // failures
  Tally tally;
  for (size_t i = 0; i < jobs.size(); ++i) {
    for (const int n : ranks) {
      if (tally.wrong < kEnough) run_job(n, jobs[i], tally);
    }
    if (i % 5 == 4 || i + 1 == jobs.size()) show(tally);
  }
  CHECK(tally.wrong == 0);
  CHECK(tally.shunted > 0);
  CHECK(tally.forwarded > 0);
}

}  // namespace

TEST_CASE("mixed_program_under_hostile_memory") {
  run_jobs({2, 3, 5}, {{1, 13, 25}, {2, 14}});
}

// CASES_SEEDS of them from CASES_FIRST_SEED on, CASES_TOGETHER a job, with 2, 3, 4, 5 and 8 ranks, or
// with CASES_RANKS. CASES_PROGRAMS: this one job, as a failure names it.
TEST_CASE("mixed_program_nightly", "[.]") {
  std::vector<int> ranks{2, 3, 4, 5, 8};
  if (std::getenv("CASES_RANKS") != nullptr) ranks = {number_of("CASES_RANKS")};
  if (const char* programs = std::getenv("CASES_PROGRAMS")) return run_jobs(ranks, {parse_seeds(programs)});
  run_jobs(ranks, jobs_of(number_or("CASES_FIRST_SEED", 1000), number_or("CASES_SEEDS", 1000),
                          number_or("CASES_TOGETHER", 10)));
}

// Two ranks, as test/gpu/cases.py runs it.
TEST_CASE("mixed_program_of_two_ranks", "[.]") {
  run_jobs({2}, jobs_of(1, number_or("CASES_SEEDS", 24), 2));
}
