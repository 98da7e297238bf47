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

namespace {
enum Flag { kCalled, kDumped };
}  // namespace

// One rank is a call behind, as in a job that hangs.
TEST_CASE("job: dump", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  for (size_t count : {1000, 20000, 40000}) ENSURE(all_reduce_once(rank, comm, stream, count, 1) == 0);
  const Memory memory(4096);
  const auto call = [&] {
    NCCL(ncclAllReduce(memory.at(), memory.at(), 64, ncclFloat32, ncclMax, comm, stream));
  };
  if (rank.rank == 0) call();
  rank.barrier();
  rank.set(kCalled);
  rank.wait_for(kDumped, 1, 40);
  if (rank.rank == 1) call();
  stream.wait();
  done(rank, {comm});
}

TEST_CASE("case_29_dump_by_signal") {
  const auto dumps = [](const std::string& text) { return count_of(text, " all-reduces, the last ones: "); };
  TemporaryFile log0("case-29-dump-0"), log1("case-29-dump-1");
  Job job("dump", {.environment = {{"SHUNT_DUMP_SIGNAL", "USR2"}}, .of_rank = [&](int rank) {
                     return Environment{{"SHUNT_LOG_FILE", rank == 0 ? log0.path() : log1.path()}};
                   }});
  wait_until([&] { return job.shared().flags[kCalled].load() != 0; }, "the calls", 40);
  for (int rank = 0; rank < 2; ++rank) job.signal(rank, SIGUSR2);
  wait_until([&] { return dumps(read_file(log0.path())) + dumps(read_file(log1.path())) == 2; }, "dumps", 20);
  job.shared().flags[kDumped].store(1);
  CHECK(job.trouble(40) == "");
  const std::string same = "1: 4000 float sum shunted as 1, 2: 80000 float sum shunted as 2, 3: 160000 float sum forwarded";
  CHECK(count_of(read_file(log0.path()),
                 "rank 0: 4 all-reduces, the last ones: " + same + ", 4: 256 float max shunted as 3\n") == 1);
  CHECK(count_of(read_file(log1.path()), "rank 1: 3 all-reduces, the last ones: " + same + "\n") == 1);
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

// cudaDeviceReset under a live communicator; then a new life.
TEST_CASE("job: reset", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect(0);
  {
    const Stream stream;
    ENSURE(all_reduce_once(rank, comm, stream, 1000, 1) == 0);
  }
  const ncclComm_t idle = rank.connect(1);  // its set goes back to the pool
  NCCL(ncclCommDestroy(idle));
  rank.barrier();
  CU(cuDevicePrimaryCtxReset(rank.rank));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // kernels are still watched
  const auto results = [&] {
    CUcontext context = nullptr;
    CU(cuDevicePrimaryCtxRetain(&context, rank.rank));
    CU(cuCtxSetCurrent(context));
    const Stream stream;
    const Memory memory(4096);
    for (int call = 0; call < 3; ++call) {
      const ncclResult_t result =
          ncclAllReduce(memory.at(), memory.at(), 1024, ncclFloat32, ncclSum, comm, stream);
      std::printf("result %d\n", result);
    }
    std::fflush(stdout);
  };
  results();
  const ncclComm_t fresh = rank.connect(2);
  const Stream stream;
  ENSURE(all_reduce_once(rank, fresh, stream, 1000, 2) == 0);
  std::puts("fresh");
  std::fflush(stdout);
  rank.barrier();
  std::_Exit(0);  // NCCL's own state of the first one went with the context
}

TEST_CASE("case_29_reset_under_a_communicator") {
  Job job("reset", {.environment = {{"SHUNT_STATS", "0"}}});
  CHECK(job.trouble(60) == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "result 1\n") == 2 * 3);  // ncclUnhandledCudaError
  CHECK(count_of(job.output(), "fresh\n") == 2);
  CHECK(lines_of(job.output(), "error", {"was reset"}).size() == 2);
  CHECK(lines_of(job.output(), "info", {"on, push"}).size() == 3);
}
