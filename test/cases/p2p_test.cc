// Cases 1 to 8: peer access that is offered but broken, and settings.
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/cases/said.h"
#include "test/catch.h"

using namespace cases;

namespace {

constexpr size_t kCapOfTwo = 131072, kCapOfMore = 65536;
const std::vector<size_t> kSizes = {8, 4096, 65536, 65540, 131072, 262144};
constexpr unsigned long long kCalls = 7;  // one for each size, and one captured

unsigned long long calls_up_to(size_t cap) {
  unsigned long long calls = 1;  // the captured one
  for (const size_t bytes : kSizes) calls += bytes <= cap ? 1 : 0;
  return calls;
}

// P2P is broken: where it is insisted on, all ranks forward for ever; else host memory serves. All
// results are right, and one warning has all of `words`.
void expect_no_p2p(Environment faults, int ranks, const std::vector<std::string>& words) {
  const auto n = static_cast<unsigned long long>(ranks);
  for (const bool insist : {true, false}) {
    Environment environment = faults;
    if (insist) environment["SHUNT_PLACEMENT"] = "push";
    Job job("verify", {.ranks = ranks, .environment = environment});
    CHECK(job.trouble() == "");
    const std::string all = job.output();
    INFO(all);
    const unsigned long long shunted =
        insist ? 0 : n * calls_up_to(ranks == 2 ? kCapOfTwo : kCapOfMore);
    CHECK(total(all, "shunted") == shunted);
    CHECK(total(all, "forwarded") == n * kCalls - shunted);
    CHECK(count_of(all, "all right\n") == static_cast<size_t>(ranks));
    CHECK(lines_of(all, "warning").size() == 1);
    std::vector<std::string> said = words;
    said.push_back(insist ? "off: " : "push does not work: ");
    CHECK(lines_of(all, "warning", said).size() == 1);
    CHECK(lines_of(all, "info", {"on, host"}).size() == (insist ? 0u : 1u));
    CHECK(slowest_preparing(all) < (insist ? 2 : 3));
  }
}

}  // namespace

// Every size eagerly and one in a graph that is replayed: through whatever path was agreed on.
TEST_CASE("job: verify", "[.]") {
  Rank rank;
  const auto start = std::chrono::steady_clock::now();
  const ncclComm_t comm = rank.connect();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("prepared in %.3f s\n", took.count());
  const Stream stream;
  run_sizes(rank, comm, stream, 1, kSizes);
  Exchange exchange(4096);
  const Graph graph(stream, [&] { exchange.call(comm, stream); });
  for (uint64_t replay = 0; replay < 3; ++replay) {
    exchange.replay(graph, replay, rank.rank, rank.ranks, stream);
  }
  done(rank, {comm});
}

TEST_CASE("case_01_dropped_writes") {
  expect_no_p2p({{"EMU_DROP", "0>1"}}, 2, {"rank 0 -> rank 1", "did not arrive"});
  expect_no_p2p({{"EMU_DROP", "2>1"}}, 4, {"rank 2 -> rank 1", "did not arrive"});
}

TEST_CASE("case_02_corrupt_above_64k") {
  expect_no_p2p({{"EMU_CORRUPT", "0>1:above=65536"}}, 2,
                {"rank 1 (probe)", "wrong sum", "131072 bytes"});
  // With the cap of four ranks no message is that large: nothing to find, nothing to fear.
  Job job("verify", {.ranks = 4, .environment = {{"EMU_CORRUPT", "0>1:above=65536"}}});
  CHECK(job.trouble() == "");
  CHECK(total(job.output(), "shunted") == 4 * calls_up_to(kCapOfMore));
}

// A group's calls run in a kernel of their own, and what only that one shows shows in the probe.
TEST_CASE("case_02_corrupt_in_groups") {
  expect_no_p2p({{"EMU_CORRUPT", "0>1:kernel=_grouped_"}}, 2,
                {"rank 1 (probe)", "wrong sum", "in several messages"});
  expect_no_p2p({{"EMU_DROP", "1>0:kernel=_grouped_"}}, 3, {"rank 1 -> rank 0", "did not arrive"});
}

TEST_CASE("case_03_ipc_refused_on_one_of_four") {
  expect_no_p2p({{"EMU_IPC_FAIL", "2"}}, 4, {"rank 2 (mapping)"});
}

// The world of four, then the pairs {0,1} and {2,3}; both kinds are used in turn afterwards.
TEST_CASE("job: pairs", "[.]") {
  Rank rank;
  const ncclComm_t world = rank.connect();
  ncclComm_t pair = nullptr;
  NCCL(ncclCommSplit(world, rank.rank / 2, rank.rank, &pair, nullptr));
  const Stream stream;
  Exchange wide(4096), narrow(4096);
  for (uint64_t round = 0; round < 10; ++round) {
    wide.run(round, rank.rank, 4, world, stream);
    narrow.run(round, rank.rank % 2, 2, pair, stream);
  }
  std::puts("all right");
  rank.barrier();
  NCCL(ncclCommDestroy(pair));
  NCCL(ncclCommDestroy(world));
}

TEST_CASE("case_04_access_only_inside_pairs") {
  const std::string cut = "0>2,0>3,1>2,1>3,2>0,2>1,3>0,3>1";
  Job job("pairs", {.ranks = 4, .environment = {{"EMU_NO_P2P", cut}}});
  CHECK(job.trouble() == "");
  const std::string all = job.output();
  INFO(all);
  CHECK(count_of(all, "all right\n") == 4);
  CHECK(lines_of(all, "warning", {"push does not work", "mapping"}).size() == 1);
  CHECK(lines_of(all, "info", {"of 4 ranks: on, host"}).size() == 1);
  CHECK(lines_of(all, "info", {"of 2 ranks: on, push"}).size() == 2);
  CHECK(total(all, "shunted") == 80);
  CHECK(total(all, "forwarded") == 0);
}

TEST_CASE("case_05_replay_loses_writes") {
  expect_no_p2p({{"EMU_DROP", "0>1:graph"}}, 2, {"rank 0 -> rank 1", "did not arrive"});
  expect_no_p2p({{"EMU_CORRUPT", "1>0:graph"}}, 2, {"rank 0 (probe)", "replayed"});
}

// A number of good calls, then one that rank 1 cannot finish, with a copy behind it that must not
// happen.
TEST_CASE("job: lose", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  Exchange exchange(4096);
  const int good = number_of("CASES_GOOD_CALLS");
  for (int i = 0; i < good; ++i) {
    exchange.run(static_cast<uint64_t>(i), rank.rank, 2, comm, stream);
  }
  std::puts("all right");
  rank.barrier();
  if (std::getenv("EMU_DROP") == nullptr) return;

  Pinned marker(4);
  *marker.words() = 0;
  exchange.fill(99, rank.rank, stream);
  exchange.call(comm, stream);
  exchange.fetch(stream);
  CU(cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(marker.words()), 1, 1, stream));
  const CUresult end = stream.end(std::getenv("SHUNT_TIMEOUT") != nullptr ? 30 : 75);
  std::printf("end %d marker %u\n", static_cast<int>(end), *marker.words());
  std::fflush(stdout);
  if (end == CUDA_SUCCESS) exchange.check(2);
  rank.barrier(90);
  std::exit(end == CUDA_SUCCESS ? 0 : 3);
}

namespace {

// Kernels that rank 0 runs up to and with `calls` good calls, counted in a run without a fault:
// those of preparing (some of them in a graph, the only one) are among them.
size_t launches_up_to(int calls) {
  const TemporaryFile trace("case-06-trace");
  Job job("lose",
          {.environment = {{"CASES_GOOD_CALLS", std::to_string(calls)}}, .of_rank = [&](int rank) {
             return rank == 0 ? Environment{{"EMU_TRACE", trace.path()}} : Environment{};
           }});
  REQUIRE(job.trouble() == "");
  size_t eager = 0, captured = 0;
  bool in_capture = false;
  std::istringstream lines(read_file(trace.path()));
  for (std::string line; std::getline(lines, line);) {
    if (count_of(line, " cuStreamBeginCapture") != 0) in_capture = true;
    if (count_of(line, " cuStreamEndCapture") != 0) in_capture = false;
    if (count_of(line, " launch shunt_all_reduce") != 0) ++(in_capture ? captured : eager);
  }
  return eager + captured * count_of(read_file(trace.path()), " cuGraphLaunch");
}

}  // namespace

namespace {

constexpr int kGood = 8;
const std::vector<std::string> kWords = {"rank 1 waits for rank 0", "call 9 (4096 bytes"};

Environment lossy() {
  return {{"CASES_GOOD_CALLS", std::to_string(kGood)},
          {"EMU_DROP", "0>1:after=" + std::to_string(launches_up_to(kGood))}};
}

}  // namespace

TEST_CASE("case_06_loss_after_the_probe") {
  Environment environment = lossy();
  environment.insert({"SHUNT_TIMEOUT", "1"});
  Job job("lose", {.environment = environment});
  REQUIRE(job.wait_all(60));
  INFO(job.output());
  CHECK(count_of(job.output(0), "end 0 marker 1\n") == 1);  // its peer's data did arrive
  CHECK(job.status(0) == 0);
  CHECK(job.status(1) == 3);
  CHECK(count_of(job.output(1), " marker 0\n") == 1);
  CHECK(count_of(job.output(1), "end 0 ") + count_of(job.output(1), "end 600 ") == 0);
  CHECK(lines_of(job.output(1), "error", kWords).size() == 1);
  CHECK(count_of(job.output(), "all right\n") == 2);
}

// Idle for a minute, which is when a wait is reported; then it goes on. Later under load: the
// kernel polls seldom then.
TEST_CASE("case_06_loss_is_reported_after_a_minute") {
  Job job("lose", {.environment = lossy()});
  REQUIRE(job.wait_all(100));
  INFO(job.output());
  CHECK(job.status(0) == 0);
  CHECK(job.status(1) == 3);
  CHECK(count_of(job.output(1), "end 600 marker 0\n") == 1);  // CUDA_ERROR_NOT_READY
  CHECK(lines_of(job.output(1), "warning", kWords).size() +
            lines_of(job.output(1), "error", kWords).size() ==
        1);
  CHECK(count_of(job.output(), "all right\n") == 2);
}

TEST_CASE("case_07_nccl_p2p_disable") {
  const TemporaryFile trace("case-07-trace");
  Job job("verify", {.environment = {{"NCCL_P2P_DISABLE", "1"}, {"EMU_TRACE", trace.path()}}});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(lines_of(job.output(), "info", {"on, host"}).size() == 1);
  CHECK(total(job.output(), "shunted") == 2 * calls_up_to(kCapOfTwo));
  const std::string calls = read_file(trace.path());
  CHECK(count_of(calls, " cuMemAlloc_v2 = 0\n") > 0);
  CHECK(count_of(calls, " cuIpcOpenMemHandle") == 0);
  CHECK(count_of(calls, " cuCtxEnablePeerAccess") == 0);
  CHECK(count_of(calls, " launch shunt_") > 0);
}

TEST_CASE("case_08_settings") {
  for (const char* off : {"0", "off", "false", ""}) {
    Job job("verify", {.environment = {{"SHUNT_ENABLE", off}}});
    CHECK(job.trouble() == "");
    INFO(off << job.output());
    CHECK(total(job.output(), "shunted") == 0);
    CHECK(total(job.output(), "forwarded") == 2 * kCalls);
    CHECK(lines_of(job.output(), "info", {"switched off (SHUNT_ENABLE)"}).size() == 1);
  }
  for (const char* malformed : {"1 MB", "-3", "64Q", "99999999999999999999"}) {
    Job job("verify", {.environment = {{"SHUNT_CAP", malformed}}});
    CHECK(job.trouble() == "");
    INFO(malformed << job.output());
    const std::string quoted =
        std::string("SHUNT_CAP=\"") + malformed + "\" is not a size; allowed:";
    CHECK(lines_of(job.output(), "error").size() == 2);  // one for each process
    CHECK(lines_of(job.output(), "error", {quoted, "using the default: measure"}).size() == 2);
    CHECK(count_of(job.output(), "all right\n") == 2);
    CHECK(lines_of(job.output(), "info", {"(measured)"}).size() +
              lines_of(job.output(), "info", {"NCCL is faster"}).size() ==
          1);
  }
}

// What emulated GPUs find is chance; that all ranks make the same of it is not.
TEST_CASE("case_37_measured_cap") {
  for (const int ranks : {2, 3}) {
    Job job("verify",
            {.ranks = ranks, .environment = {{"SHUNT_CAP", "measure"}, {"SHUNT_LOG", "debug"}}});
    CHECK(job.trouble(60) == "");
    const std::string all = job.output();
    INFO(all);
    const auto n = static_cast<unsigned long long>(ranks);
    CHECK(count_of(all, "all right\n") == static_cast<size_t>(ranks));
    CHECK(lines_of(all, "debug", {"NCCL", "one shot", "two shots"}).size() >= 1);
    CHECK(lines_of(all, "info", {"(measured)"}).size() +
              lines_of(all, "info", {"NCCL is faster"}).size() ==
          1);
    CHECK(total(all, "shunted") % n == 0);
    CHECK(total(all, "shunted") + total(all, "forwarded") == n * kCalls);
  }
  // Data is lost only once the probe has passed: what is then timed has not ended, and nobody may
  // rely on it.
  {
    Job job("verify", {.environment = {{"SHUNT_CAP", "measure"}, {"EMU_DROP", "0>1:after=45"}}});
    CHECK(job.trouble(60) == "");
    INFO(job.output());
    CHECK(count_of(job.output(), "all right\n") == 2);
    CHECK(total(job.output(), "shunted") == 0);
    CHECK(lines_of(job.output(), "warning", {"(measure)", "did not end"}).size() == 1);
  }
  // One rank has a cap of its own: nothing is measured, and all have that.
  Job job("verify", {.environment = {{"SHUNT_LOG", "debug"}}, .of_rank = [](int rank) {
                       return Environment{{"SHUNT_CAP", rank == 0 ? "measure" : "4096"}};
                     }});
  CHECK(job.trouble() == "");
  CHECK(lines_of(job.output(), "debug", {"NCCL", "one shot"}).empty());
  CHECK(lines_of(job.output(), "info", {"cap 4096 bytes"}).size() == 1);
  CHECK(total(job.output(), "shunted") == 2 * calls_up_to(4096));
}
