// Case 27 where the others wait in NCCL's own kernels: they cannot be stopped, but who asks is told.
#include <unistd.h>

#include <cstdio>

#include "test/cases/client.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

enum Flag { kWaits, kAsked };

constexpr size_t kLong = 60000;  // elements; above the cap

ncclResult_t async_error(ncclComm_t comm) {
  ncclResult_t error = ncclInternalError;
  NCCL(ncclCommGetAsyncError(comm, &error));
  return error;
}

// Seconds until NCCL's error is no longer "none"; `most` if it never is.
double seconds_to_error(ncclComm_t comm, double most) {
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> passed{0};
  while (async_error(comm) == ncclSuccess && passed.count() < most) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    passed = std::chrono::steady_clock::now() - begin;
  }
  return passed.count();
}

}  // namespace

// Rank 1 is killed, rank 0 waits in what CASES_CALL says.
TEST_CASE("job: forwarded wait", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  ENSURE(all_reduce_once(rank, comm, stream, 1000, 1) == 0);
  ENSURE(all_reduce_once(rank, comm, stream, kLong, 2) == 0);
  if (rank.rank == 1) {
    rank.wait_for(kWaits);
    kill(getpid(), SIGKILL);
  }
  const Memory memory(kLong * 8);
  const std::string call = getenv("CASES_CALL");
  const bool grouped = call.find("group") != std::string::npos;
  if (grouped) NCCL(ncclGroupStart());
  if (call.find("receive") != std::string::npos) {
    NCCL(ncclRecv(memory.at(), kLong, ncclFloat32, 1, comm, stream));
  } else if (call.find("gather") != std::string::npos) {
    NCCL(ncclAllGather(memory.at(), memory.at(), kLong, ncclFloat32, comm, stream));
  } else {
    NCCL(ncclAllReduce(memory.at(), memory.at(), kLong, ncclFloat32, ncclSum, comm, stream));
  }
  // Behind it, a shunted one, which cannot begin.
  if (call.find("then") != std::string::npos) {
    NCCL(ncclAllReduce(memory.at(), memory.at(), 100, ncclFloat32, ncclSum, comm, stream));
  }
  if (grouped) NCCL(ncclGroupEnd());
  ENSURE(async_error(comm) == ncclSuccess);
  rank.set(kWaits);
  rank.wait_for(kAsked);
  std::printf("error after %.1f s\n", seconds_to_error(comm, 3));
  if (call.find("receive") == std::string::npos) {
    for (const size_t count : {size_t{100}, kLong}) {
      std::printf("call %d\n", ncclAllReduce(memory.at(), memory.at(), count, ncclFloat32, ncclSum, comm, stream));
    }
  }
  ENSURE(stream.end(0) == CUDA_ERROR_NOT_READY);
  std::printf("aborted %d\n", ncclCommAbort(comm));
  std::fflush(stdout);
  _exit(0);
}

TEST_CASE("case_27_killed_in_a_forwarded_call") {
  for (const char* call : {"reduce", "gather", "group of reduce", "reduce then shunted", "group of reduce then shunted"}) {
    Job job("forwarded wait", {.environment = {{"CASES_CALL", call}}});
    REQUIRE(job.wait(1, 30));
    const std::string process = "rank 1 (process " + std::to_string(job.pid(1)) + ")";
    job.shared().flags[kAsked].store(1);
    REQUIRE(job.wait(0, 20));
    const std::string output = job.output(0);
    INFO(call << "\n" << output);
    CHECK(job.status(0) == 0);
    CHECK(lines_of(output, "error", {"rank 0 waits in an operation that NCCL runs", process}).size() == 1);
    CHECK(lines_of(output, "info", {"has ended"}).empty());
    CHECK((count_of(output, "error after 0.") == 1 || count_of(output, "error after 1.0") == 1));
    CHECK(count_of(output, "call 6\n") == 2);  // ncclRemoteError
    CHECK(count_of(output, "aborted 0\n") == 1);
  }
}

// Nobody asks: a word, and the wait is NCCL's. A sender may have finished before this rank began, so that a
// receiver that still waits is no error for us to find.
TEST_CASE("case_27_killed_in_a_forwarded_call_and_nobody_asks") {
  for (const char* call : {"reduce", "receive"}) {
    Job job("forwarded wait", {.environment = {{"CASES_CALL", call}}});
    REQUIRE(job.wait(1, 30));
    const std::string process = "rank 1 (process " + std::to_string(job.pid(1)) + ")";
    const auto said = [&] { return lines_of(job.output(0), "info", {process, "has ended", "NCCL"}).size(); };
    wait_until([&] { return said() == 1; }, "a word", 5);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    CHECK(said() == 1);
    CHECK(job.running(0));
    CHECK(lines_of(job.output(0), "error").empty());
    job.shared().flags[kAsked].store(1);
    REQUIRE(job.wait(0, 20));
    INFO(job.output(0));
    CHECK(job.status(0) == 0);
    const bool receives = std::string(call) == "receive";
    CHECK(lines_of(job.output(0), "error", {process}).size() == (receives ? 0 : 1));
    CHECK(count_of(job.output(0), "error after 3.") == (receives ? 1 : 0));
  }
}
