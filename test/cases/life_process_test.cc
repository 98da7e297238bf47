// What a process does to the library from outside of NCCL: forks and contexts.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <sstream>

#include "test/cases/client.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

// A thread is in the middle of the first call of NCCL while another one forks.
TEST_CASE("job: forked while busy", "[.]") {
  auto* slow = static_cast<std::atomic<int>*>(dlsym(RTLD_DEFAULT, "slow_calls"));
  ENSURE(slow != nullptr);
  std::thread first([] {
    NCCL(ncclGroupStart());
    NCCL(ncclGroupEnd());
  });
  wait_until([&] { return slow->load() != 0; }, "a slow call", 20);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool fine = ncclGroupStart() == ncclSuccess && ncclGroupEnd() == ncclSuccess;
    _exit(fine ? 0 : 1);
  }
  int status = -1;
  ENSURE(waitpid(child, &status, 0) == child);
  std::printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  first.join();
}

TEST_CASE("case_10_forked_while_the_engine_is_busy") {
  for (const char* call : {"dlinfo", "getcwd"}) {
    Job job("forked while busy",
            {.ranks = 1,
             .environment = {{"LD_PRELOAD", std::string(CASES_PRELOAD) + ":" + CASES_SLOW_ADOPTION},
                             {"SLOW_CALL", call}}});
    CHECK(job.trouble(40) == "");
    INFO(call << "\n" << job.output());
    CHECK(count_of(job.output(), "child 0\n") == 1);
  }
}

// More of them than the library remembers once they are gone; the program has no context current.
TEST_CASE("job: without a context", "[.]") {
  const Rank rank;
  std::vector<ncclComm_t> comms;
  for (int i = 0; i < 12; ++i) comms.push_back(rank.connect(i));
  CU(cuCtxSetCurrent(nullptr));
  for (ncclComm_t comm : comms) NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_29_destroyed_without_a_context") {
  const TemporaryFile trace("case-29-trace");
  Job job("without a context", {.of_rank = [&](int rank) {
            return rank == 0 ? Environment{{"EMU_TRACE", trace.path()}} : Environment{};
          }});
  REQUIRE(job.trouble(60) == "");
  std::istringstream lines(read_file(trace.path()));
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) all.push_back(line);
  size_t from = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (count_of(all[i], " cuCtxSetCurrent = 0") != 0) from = i;
  }
  int depth = 0, inside = 0, outside = 0;
  for (size_t i = from; i < all.size(); ++i) {
    if (count_of(all[i], " cuCtxPushCurrent_v2 = 0") != 0) ++depth;
    if (count_of(all[i], " cuCtxPopCurrent_v2 = 0") != 0) --depth;
    if (count_of(all[i], " cuEventDestroy_v2 = ") != 0) ++(depth > 0 ? inside : outside);
  }
  CHECK(inside >= 4 * 5);
  CHECK(outside == 0);
}
