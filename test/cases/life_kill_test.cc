// Case 27: rank 3 of 4 is killed, at many places inside preparing and in mid-call. Whoever waits
// for it says so and names it; no stream goes on with an unfinished sum; nothing stays behind; the
// next job is right.
#include "test/cases/life_kill.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "test/cases/client.h"
#include "test/cases/exchange.h"
#include "test/cases/life_lines.h"
#include "test/catch.h"

using namespace cases;
using namespace cases::life;

namespace cases::life {

std::set<std::string> shared_memory_files() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path();
    for (const char* ours : {"nccl", "shunt", "emulated", "cuda"}) {
      if (name.find(ours) != std::string::npos) names.insert(name);
    }
  }
  return names;
}

JobOptions options(long kill_at_line, Environment more) {
  JobOptions all;
  all.ranks = kRanks;
  all.environment = std::move(more);
  all.environment.emplace("SHUNT_CAP", "8192");
  all.of_rank = [kill_at_line](int rank) {
    Environment mine;
    if (rank == kVictim) mine = counted();
    if (rank == kVictim && kill_at_line > 0)
      mine.emplace("LIFE_KILL_AT_LINE", std::to_string(kill_at_line));
    return mine;
  };
  return all;
}

Map clean_run() {
  Job job("killed", options(0, {{"LIFE_TEN_CALLS", "1"}, {"LIFE_DESTROY", "1"}}));
  REQUIRE(job.trouble(60) == "");
  CHECK(lines_of(job.output(), "error").empty());
  CHECK(count_of(job.output(), "ended by all calls done") == kRanks);
  CHECK(lines_of(job.output(), "info", {"of 4 ranks: on"}).size() == 1);
  const auto flag = [&](Flag which) { return job.shared().flags[which].load(); };
  Map map{flag(kBegan), flag(kPrepared), flag(kDestroying), flag(kDestroyed), {}};
  for (int i = 0; job.shared().flags[kFirstOperation + i].load() != 0; ++i) {
    map.rounds.push_back(job.shared().flags[kFirstOperation + i].load());
  }
  return map;
}

// The victim died so early that a peer found its memory gone, and so late that it still took part
// in the round that told the others: all forward for ever, and the wait for the victim is NCCL's
// own.
static bool agreed_to_forward(const Job& job) {
  return !lines_of(job.output(0), "warning", {"off: rank"}).empty();
}

void check_survivors(Job& job, double seconds, const std::string& end) {
  const std::string dead = "rank " + std::to_string(kVictim);
  const std::string process = "process " + std::to_string(job.pid(kVictim));
  REQUIRE(job.wait(kVictim, seconds));
  CHECK(job.status(kVictim) == 128 + SIGKILL);
  const auto ended = [&] { return !job.running(0) && !job.running(1) && !job.running(2); };
  CHECK_NOTHROW(wait_until([&] { return ended() || agreed_to_forward(job); }, "an end", seconds));
  if (agreed_to_forward(job)) {
    INFO(job.output());
    CHECK(end.empty());
    for (int rank = 0; rank < kVictim; ++rank) {
      INFO(job.output(rank));
      CHECK(job.running(rank));
      CHECK(job.output(rank).find("ended by") == std::string::npos);
      CHECK(total(job.output(rank), "shunted") == 0);
    }
    return;
  }
  for (int rank = 0; rank < kVictim; ++rank) {
    const bool in_time = job.wait(rank, seconds);
    const std::string output = job.output(rank);
    INFO("rank " << rank << " ended with " << job.status(rank) << "\n" << output);
    CHECK(in_time);
    CHECK(job.status(rank) == 0);
    const size_t named = lines_of(output, "error", {dead, process}).size() +
                         lines_of(output, "warning", {dead, process}).size();
    CHECK(named >= 1);
    if (!end.empty()) CHECK(output.find("ended by " + end) != std::string::npos);
  }
}

}  // namespace cases::life

TEST_CASE("case_27_killed_inside_preparing") {
  const auto files = shared_memory_files();
  const Map map = clean_run();
  // Facts, links, memory, mapping, probe.
  REQUIRE(map.rounds.size() == 5);
  REQUIRE(map.prepared > map.rounds[4]);
  // Right after the end of each round, and at places spread over all that follows the first.
  std::vector<uint32_t> lines;
  for (size_t round = 1; round < map.rounds.size(); ++round) lines.push_back(map.rounds[round]);
  constexpr uint32_t kPlaces = 60;
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const uint32_t from = map.rounds[1], length = map.prepared - from;
    lines.push_back(from + 1 + length * i / kPlaces);
  }
  constexpr size_t kAtOnce = 4;
  for (size_t first = 0; first < lines.size(); first += kAtOnce) {
    std::vector<std::unique_ptr<Job>> jobs;
    const size_t last = std::min(first + kAtOnce, lines.size());
    for (size_t i = first; i < last; ++i) {
      jobs.push_back(std::make_unique<Job>("killed", options(lines[i])));
    }
    for (size_t i = first; i < last; ++i) {
      INFO("killed at line " << lines[i] << " of " << map.began << " to " << map.prepared);
      check_survivors(*jobs[i - first], 20, "");
    }
  }
  clean_run();
  CHECK(shared_memory_files() == files);
}

// Nobody knows the victim yet: the wait is NCCL's own, which has no end. Nothing may come out of
// it.
TEST_CASE("case_27_killed_before_preparing") {
  const Map map = clean_run();
  std::vector<std::unique_ptr<Job>> jobs;
  for (const uint32_t line : {map.began + 2, map.rounds[0] - 1, map.rounds[0]}) {
    jobs.push_back(std::make_unique<Job>("killed", options(line)));
  }
  for (auto& job : jobs) {
    REQUIRE(job->wait(kVictim, 20));
    CHECK(job->status(kVictim) == 128 + SIGKILL);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  for (auto& job : jobs) {
    for (int rank = 0; rank < kVictim; ++rank) {
      INFO(job->output(rank));
      CHECK(job->running(rank));
      CHECK(job->output(rank).find("made") == std::string::npos);
    }
  }
  jobs.clear();
  clean_run();
}

// By its own calls' lines, exactly at a launch, and by the clock; eager and from a graph.
TEST_CASE("case_27_killed_in_mid_call") {
  const auto files = shared_memory_files();
  const Map map = clean_run();
  constexpr int kTimes = 40, kAtOnce = 4;
  for (int first = 0; first < kTimes; first += kAtOnce) {
    std::vector<std::unique_ptr<Job>> jobs;
    for (int i = first; i < first + kAtOnce; ++i) {
      Environment more;
      if (i % 2 == 1) more.emplace("LIFE_WAY", "graph");
      const long line = i % 4 < 2 ? map.prepared + 10 + 13 * i : 0;
      jobs.push_back(std::make_unique<Job>("killed", options(line, more)));
    }
    for (int i = first; i < first + kAtOnce; ++i) {
      Job& job = *jobs[static_cast<size_t>(i - first)];
      if (i % 4 >= 2) {
        wait_until([&] { return job.shared().flags[kReady + kVictim].load() != 0; }, "the victim");
        pause_us(static_cast<size_t>(i) * 1700);
        job.signal(kVictim);
      }
    }
    for (auto& job : jobs) check_survivors(*job, 20, "remote error");
  }
  clean_run();
  CHECK(shared_memory_files() == files);
}

// A program that does not look: the kernel traps after the grace, or after SHUNT_TIMEOUT.
TEST_CASE("case_27_killed_and_nobody_aborts") {
  const Map map = clean_run();
  std::vector<std::unique_ptr<Job>> jobs;
  for (const char* timeout : {"(unset)", "1"}) {
    for (const char* way : {"(unset)", "graph"}) {
      const Environment more = {{"LIFE_WAIT", "1"}, {"SHUNT_TIMEOUT", timeout}, {"LIFE_WAY", way}};
      jobs.push_back(std::make_unique<Job>("killed", options(map.prepared + 60, more)));
    }
  }
  for (auto& job : jobs) check_survivors(*job, 30, "cuda error");
  clean_run();
}
