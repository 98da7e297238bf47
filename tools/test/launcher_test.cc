// The launcher and workers that are no workers: what a user reads when one cannot start, ends
// early or hangs. coreutils stand in, for a worker's arguments are just numbers.
#include "tools/bench/launcher.h"

#include <chrono>

#include "test/catch.h"

using namespace shunt::bench;

namespace {

// The failure, and what the workers wrote to stderr.
std::string run(const std::string& worker, uint32_t ranks, Launch launch, uint32_t timeout_s = 20) {
  Job job;
  job.options.sizes = parse_sizes("8");
  job.options.ranks = ranks;
  job.options.launch = launch;
  job.worker = worker;
  job.timeout_s = timeout_s;
  std::string lines;
  const std::string failure =
      run_job(job, {[](uint32_t, const Fields&) {},
                    [&](uint32_t, const std::string& line) { lines += line + "\n"; }});
  return failure + "\n" + lines;
}

}  // namespace

TEST_CASE("one process a rank, or one for all") {
  Options options;
  options.ranks = 3;
  CHECK(ranks_by_worker(options) == std::vector<std::vector<uint32_t>>{{0}, {1}, {2}});
  options.launch = Launch::kThreads;
  CHECK(ranks_by_worker(options) == std::vector<std::vector<uint32_t>>{{0, 1, 2}});
}

TEST_CASE("a worker that ends without a word is named with its status") {
  CHECK_THAT(run("/bin/true", 2, Launch::kProcesses),
             ContainsSubstring("exited with status 0 before it had finished"));
  const std::string end = run("/bin/false", 1, Launch::kProcesses);
  CHECK_THAT(end, ContainsSubstring("rank 0") && ContainsSubstring("status 1"));
}

TEST_CASE("a worker that cannot be started") {
  CHECK_THAT(run("/no/such/worker", 1, Launch::kProcesses),
             ContainsSubstring("could not be started"));
}

TEST_CASE("what a worker writes to stderr is passed on") {
  // ls complains about its argument, 0.
  CHECK_THAT(run("/bin/ls", 1, Launch::kProcesses),
             ContainsSubstring("No such file or directory\n"));
}

TEST_CASE("a hang ends at the deadline and names ranks and phases") {
  // sleep adds its arguments up: 0 + 1 + ... + 63 seconds.
  const auto begin = std::chrono::steady_clock::now();
  const std::string end = run("/bin/sleep", 64, Launch::kThreads, 1);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
  CHECK_THAT(end, ContainsSubstring("not finished after 1 s") && ContainsSubstring("rank 63 in:"));
}
