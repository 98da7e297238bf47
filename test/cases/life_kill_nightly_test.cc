// Case 27 at length: every place twenty times. Outside ctest: `cmake --build build --target
// killed_nightly`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "test/cases/client.h"
#include "test/cases/exchange.h"
#include "test/cases/life_kill.h"
#include "test/catch.h"

using namespace cases;
using namespace cases::life;

namespace {

constexpr int kPatience = 60;  // seconds: this is run beside other long tests

// Where a victim is killed, and how the others' calls end then: "" in preparing, where they may not
// come to it; "none": not at all, for the wait is NCCL's own, in making the communicator.
struct Point {
  const char* name;
  const char* way;
  long line;  // of the victim's life, or of its destroy; 0: by the clock, once it is ready
  const char* end;
};

std::vector<Point> points(const Map& map) {
  const auto between = [&](long part) {
    return map.rounds[1] + (map.prepared - map.rounds[1]) * part / 4;
  };
  const long alone = map.prepared;
  return {
      {"before preparing", "(unset)", map.began + 2, "none"},
      {"in the first round", "(unset)", map.rounds[0], "none"},
      {"after the facts", "(unset)", map.rounds[1], ""},
      {"after the links", "(unset)", map.rounds[2], ""},
      {"after the memory", "(unset)", map.rounds[3], ""},
      {"after the mapping", "(unset)", map.rounds[4], ""},
      {"a quarter into preparing", "(unset)", between(1), ""},
      {"half into preparing", "(unset)", between(2), ""},
      {"three quarters into preparing", "(unset)", between(3), ""},
      {"before the vote", "(unset)", map.prepared - 2, ""},
      {"in the first call", "(unset)", alone + 8, "remote error"},
      {"in a later call", "(unset)", alone + 300, "remote error"},
      {"among calls", "(unset)", 0, "remote error"},
      {"in the capture", "graph", alone + 4, "remote error"},
      {"in a replay", "graph", alone + 60, "remote error"},
      {"among replays", "graph", 0, "remote error"},
      {"in a group", "group", alone + 60, "remote error"},
      {"among groups", "group", 0, "remote error"},
      {"among forwarded calls", "forwarded", 0, "remote error"},
      {"among forwarded and shunted calls", "mixed", 0, "remote error"},
      {"as the destroy begins", "(unset)", 1, "destroyed"},
      {"in the destroy", "(unset)", (map.destroyed - map.destroying) / 2, "destroyed"},
  };
}

std::unique_ptr<Job> start(const Point& point, size_t milliseconds) {
  Environment more{{"LIFE_WAY", point.way}, {"LIFE_PATIENCE", std::to_string(kPatience)}};
  const bool in_destroy = std::strcmp(point.end, "destroyed") == 0;
  if (in_destroy) {
    more.emplace("LIFE_TEN_CALLS", "1");
    more.emplace("LIFE_DESTROY", "1");
    more.emplace("LIFE_KILL_IN_DESTROY", std::to_string(point.line));
  }
  JobOptions all = options(in_destroy ? 0 : point.line, more);
  all.limit_seconds = 3 * kPatience;
  auto job = std::make_unique<Job>("killed", all);
  if (point.line != 0) return job;
  wait_until([&] { return job->shared().flags[kReady + kVictim].load() != 0; }, "the victim",
             kPatience);
  pause_us(1000 * milliseconds);
  job->signal(kVictim);
  return job;
}

// NCCL's own wait, in making the communicator: nothing comes out of it.
void check_no_end(Job& job) {
  REQUIRE(job.wait(kVictim, kPatience));
  CHECK(job.status(kVictim) == 128 + SIGKILL);
  pause_us(500'000);
  for (int rank = 0; rank < kVictim; ++rank) {
    const bool running = job.running(rank);
    const std::string output = job.output(rank);
    INFO("rank " << rank << " ended with " << job.status(rank) << "\n" << output);
    CHECK(running);
    CHECK(output.find("made") == std::string::npos);
  }
}

// All calls were over: the others need not notice.
void check_destroyed(Job& job) {
  REQUIRE(job.wait(kVictim, kPatience));
  CHECK(job.status(kVictim) == 128 + SIGKILL);
  for (int rank = 0; rank < kVictim; ++rank) {
    const bool in_time = job.wait(rank, kPatience);
    INFO("rank " << rank << " ended with " << job.status(rank) << "\n" << job.output(rank));
    CHECK(in_time);
    CHECK(job.status(rank) == 0);
    CHECK(job.output(rank).find("ended by all calls done") != std::string::npos);
  }
}

}  // namespace

// 22 points, CASES_TIMES (20) times each; CASES_POINT: the one with this name.
TEST_CASE("killed_nightly", "[.]") {
  const auto files = shared_memory_files();
  const Map map = clean_run();
  const int times = std::getenv("CASES_TIMES") != nullptr ? number_of("CASES_TIMES") : 20;
  constexpr int kAtOnce = 2;
  const char* only = std::getenv("CASES_POINT");
  for (const Point& point : points(map)) {
    if (only != nullptr && std::strcmp(only, point.name) != 0) continue;
    for (int first = 0; first < times; first += kAtOnce) {
      std::vector<std::unique_ptr<Job>> jobs;
      const int last = std::min(first + kAtOnce, times);
      for (int i = first; i < last; ++i) jobs.push_back(start(point, static_cast<size_t>(7 * i)));
      for (auto& job : jobs) {
        INFO("killed " << point.name << ", line " << point.line);
        const std::string end = point.end;
        if (end == "none") {
          check_no_end(*job);
        } else if (end == "destroyed") {
          check_destroyed(*job);
        } else {
          check_survivors(*job, kPatience, end);
        }
      }
    }
    clean_run();
    CHECK(shared_memory_files() == files);
    std::printf("killed %s: %d times\n", point.name, times);
    std::fflush(stdout);
  }
}
