// Cases 15, 16 and 18 to 21: all-reduces in CUDA graphs. Case 17, counters near their wraps, is
// test/protocol's.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

// On one rank now and then, so that the other waits in its kernel.
void dawdle(const Rank& rank, Random& random) {
  if (rank.rank == 0 && random.below(8) == 0) pause_us(random.below(3000));
}

}  // namespace

// ---- 15 and 21
// -----------------------------------------------------------------------------------------

TEST_CASE("job: replay", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  Exchange exchange(4096);
  const Graph graph(stream, [&] { exchange.call(comm, stream); });
  Random random(static_cast<uint64_t>(rank.rank));
  for (uint64_t replay = 0; replay < 1000; ++replay) {
    exchange.replay(graph, replay, rank.rank, rank.ranks, stream, [&] { dawdle(rank, random); });
  }
  done(rank, {comm});
}

TEST_CASE("case_15_thousand_replays") {
  for (const int ranks : numbers_of_ranks({2, 3})) {
    Job job("replay", {.ranks = ranks});
    CHECK(job.trouble() == "");
    const auto n = static_cast<size_t>(ranks);
    CHECK(count_of(job.output(), "all right\n") == n);
    CHECK(total(job.output(), "shunted") == n);  // captured once
    CHECK(total(job.output(), "forwarded") == 0);
  }
}

// The check itself: where the captured call does nothing, the poison of the first replay is what is
// found.
TEST_CASE("case_21_output_poisoned") {
  Job job("replay", {.environment = {{"EMU_NCCL_NULL", "1"}}, .preload = false});
  REQUIRE(job.wait_all(30));
  for (int rank = 0; rank < 2; ++rank) {
    INFO(job.output(rank));
    CHECK(job.status(rank) != 0);
    CHECK(count_of(job.output(rank), "wrong result: word 0 of 1024 is 2075647661,") == 1);
  }
}

// ---- 16
// --------------------------------------------------------------------------------------------------

// Graph g holds g + 1 all-reduces; eager calls have every size up to the cap and above.
TEST_CASE("job: mixed", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  const size_t captured_sizes[] = {4096, 12288, 65536};
  std::vector<std::unique_ptr<Exchange>> parts[3];
  std::vector<std::unique_ptr<Graph>> graphs;
  for (size_t g = 0; g < 3; ++g) {
    for (size_t i = 0; i <= g; ++i) {
      parts[g].push_back(
          std::make_unique<Exchange>(captured_sizes[i], i == 1 ? ncclUint32 : ncclFloat32));
    }
    graphs.push_back(std::make_unique<Graph>(stream, [&] {
      for (const auto& part : parts[g]) part->call(comm, stream);
    }));
  }
  std::vector<std::unique_ptr<Exchange>> eager;
  for (const size_t bytes : {8, 12, 2052, 4096, 40000, 131072, 262144}) {
    eager.push_back(std::make_unique<Exchange>(bytes, bytes == 12 ? ncclUint32 : ncclFloat32));
  }
  Random random(16), delay(static_cast<uint64_t>(rank.rank));
  const uint64_t rounds = static_cast<uint64_t>(number_of("CASES_ROUNDS"));
  for (uint64_t round = 0; round < rounds; ++round) {
    const size_t choice = random.below(6);
    if (choice < 3) {
      for (auto& part : parts[choice]) part->fill(round, rank.rank, stream);
      dawdle(rank, delay);
      graphs[choice]->launch(stream);
      for (auto& part : parts[choice]) part->fetch(stream);
      stream.wait();
      for (auto& part : parts[choice]) part->check(rank.ranks);
    } else {
      // Large ones seldom: on two cores they take all the time.
      const size_t which = random.below(8) == 0 ? random.below(eager.size()) : random.below(4);
      eager[which]->run(round, rank.rank, rank.ranks, comm, stream);
    }
  }
  done(rank, {comm});
}

TEST_CASE("case_16_graphs_and_eager_calls_mixed") {
  Job job("mixed", {.environment = {{"CASES_ROUNDS", "5000"}}});
  CHECK(job.trouble(90) == "");
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(total(job.output(), "shunted") > 2 * 2000);
  CHECK(total(job.output(), "forwarded") > 2 * 10);
}

TEST_CASE("case_16_under_hostile_memory") {
  Job job("mixed", {.environment = {{"CASES_ROUNDS", "600"}, {"EMU_HOSTILE", "7"}}});
  CHECK(job.trouble(90) == "");
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(total(job.output(), "shunted") > 2 * 200);  // found out by the probe, it would be forwarded
}

// ---- 18
// --------------------------------------------------------------------------------------------------

TEST_CASE("job: first captured", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect(0);
  const Stream stream, other;
  Exchange exchange(4096), second(12288);
  const Graph graph(stream, [&] { exchange.call(comm, stream); });
  for (uint64_t replay = 0; replay < 20; ++replay) {
    exchange.replay(graph, replay, rank.rank, rank.ranks, stream);
  }

  // A second thread captures in global mode, in which one unsafe call of any thread ends the
  // capture, while this one makes another communicator.
  std::atomic<bool> capturing{false}, made{false};
  std::unique_ptr<Graph> late;
  std::string failure;
  std::thread thread([&] {
    try {
      CU(cuCtxSetCurrent(rank.context));
      late = std::make_unique<Graph>(other, [&] {
        capturing = true;
        wait_until([&] { return made.load(); }, "the other communicator");
        second.call(comm, other);
      });
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  wait_until([&] { return capturing.load(); }, "the capture");
  const ncclComm_t another = rank.connect(1);
  made = true;
  thread.join();
  if (!failure.empty()) throw std::runtime_error(failure);
  for (uint64_t replay = 0; replay < 20; ++replay) {
    second.replay(*late, replay, rank.rank, rank.ranks, other);
    exchange.run(100 + replay, rank.rank, rank.ranks, another, stream);
  }
  done(rank, {another, comm});
}

TEST_CASE("case_18_first_call_captured_and_preparing_beside_a_capture") {
  Job job("first captured", {.ranks = 2});
  CHECK(job.trouble() == "");
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(lines_of(job.output(), "info", {": on,"}).size() == 2);
  CHECK(total(job.output(), "shunted") == 2 * 22);
  CHECK(total(job.output(), "forwarded") == 0);
  CHECK(count_of(job.output(), "emulated cuda:") == 0);  // no misuse
}

// ---- 19
// --------------------------------------------------------------------------------------------------

// Every graph has inputs of its own, freed before the next capture, so addresses come again.
TEST_CASE("job: many graphs", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  const int graphs = number_of("CASES_GRAPHS");
  size_t free_before = 0;
  for (int i = 0; i < graphs; ++i) {
    {
      Exchange exchange(i % 3 == 0 ? 12288 : 4096);
      const Graph graph(stream, [&] { exchange.call(comm, stream); });
      for (uint64_t replay = 0; replay < 2; ++replay) {
        exchange.replay(graph, static_cast<uint64_t>(i) * 2 + replay, rank.rank, rank.ranks, stream);
      }
    }
    size_t free_now = 0, all = 0;
    CU(cuMemGetInfo(&free_now, &all));
    if (i == 0) free_before = free_now;
    ENSURE(free_now == free_before);
  }
  done(rank, {comm});
}

TEST_CASE("case_19_inputs_freed_between_500_captures") {
  const char* names[] = {
      " cuMemAlloc_v2 = ", " cuMemHostAlloc = ", " cuIpcGetMemHandle = ", " cuIpcOpenMemHandle",
      " cuModuleLoadData", " cuStreamCreate",    " cuEventCreate",        " cuMemFree_v2 = "};
  constexpr size_t kOurs[] = {2, 2, 0, 0, 0, 0, 0, 2};  // of the program, for each graph
  size_t counts[2][std::size(names)] = {};
  const size_t graphs[2] = {10, 500};
  for (size_t run = 0; run < 2; ++run) {
    const TemporaryFile trace("case-19-trace");
    Job job("many graphs", {.environment = {{"CASES_GRAPHS", std::to_string(graphs[run])},
                                            {"EMU_TRACE", trace.path()}}});
    REQUIRE(job.trouble(90) == "");
    CHECK(count_of(job.output(), "all right\n") == 2);
    CHECK(total(job.output(), "shunted") == 2 * graphs[run]);
    const std::string calls = read_file(trace.path());
    for (size_t i = 0; i < std::size(names); ++i) {
      counts[run][i] = count_of(calls, names[i]) - 2 * kOurs[i] * graphs[run];
    }
  }
  for (size_t i = 0; i < std::size(names); ++i) {
    INFO(names[i] << counts[0][i] << " with 10 graphs, " << counts[1][i] << " with 500");
    CHECK(counts[0][i] == counts[1][i]);
  }
  CHECK(counts[1][3] == 2);  // each rank opened the other's slab, once
}

// ---- 20
// --------------------------------------------------------------------------------------------------

// Runs what may fail because the GPU's work was stopped; then this process ends with status 3.
template <typename F>
void or_stop(F&& enqueue) {
  try {
    enqueue();
  } catch (const std::exception& error) {
    std::printf("stopped: %s\n", error.what());
    std::fflush(stdout);
    std::exit(3);
  }
}

// Two graphs of one communicator at once on two streams.
TEST_CASE("job: at once", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream streams[2];
  Exchange exchanges[2] = {Exchange(4096),
                           Exchange(static_cast<size_t>(number_of("CASES_SECOND")))};
  const Graph first(streams[0], [&] { exchanges[0].call(comm, streams[0]); });
  const Graph second(streams[1], [&] { exchanges[1].call(comm, streams[1]); });
  const Graph* const graphs[2] = {&first, &second};
  const int leads = number_of("CASES_OPPOSITE") != 0 ? rank.rank : 0;
  Random random(static_cast<uint64_t>(number_of("CASES_SEED") * 2 + rank.rank));
  rank.barrier();
  for (uint64_t round = 0; round < 40; ++round) {
    CUresult results[2];
    or_stop([&] {
      for (int i = 0; i < 2; ++i) {
        exchanges[i].fill(round * 2 + static_cast<uint64_t>(i), rank.rank, streams[i]);
      }
      for (const Stream& stream : streams) stream.wait();
      graphs[leads]->launch(streams[leads]);
      if (random.below(2) == 0) pause_us(random.below(400));
      graphs[1 - leads]->launch(streams[1 - leads]);
    });
    for (int i = 0; i < 2; ++i) results[i] = streams[i].end(20);
    ENSURE((results[0] != CUDA_ERROR_NOT_READY && results[1] != CUDA_ERROR_NOT_READY));
    for (int i = 0; i < 2; ++i) {
      or_stop([&] {
        CU(results[i]);
        exchanges[i].fetch(streams[i]);
        streams[i].wait(20);
      });
      exchanges[i].check(rank.ranks);
    }
  }
  std::puts("all right");
  std::fflush(stdout);
  rank.barrier();
  std::exit(0);
}

namespace {

// Both ranks end, none of them with a wrong sum and none silently. How many were stopped.
int run_at_once(int seed, const char* timeout) {
  Environment environment = {{"CASES_SEED", std::to_string(seed)},
                             {"CASES_SECOND", seed % 2 == 0 ? "4096" : "12288"},
                             {"CASES_OPPOSITE", seed % 4 < 2 ? "1" : "0"}};
  if (timeout != nullptr) environment.insert({"SHUNT_TIMEOUT", timeout});
  Job job("at once", {.environment = environment});
  INFO("seed " << seed);
  REQUIRE(job.wait_all(60));
  INFO(job.output());
  CHECK(count_of(job.output(), "wrong result") == 0);
  int stopped = 0;
  for (int rank = 0; rank < 2; ++rank) {
    if (job.status(rank) == 3) {
      ++stopped;
      CHECK(lines_of(job.output(rank), "error").size() >= 1);
    } else {
      CHECK(job.status(rank) == 0);
      CHECK(count_of(job.output(rank), "all right\n") == 1);
    }
  }
  return stopped;
}

}  // namespace

TEST_CASE("case_20_two_graphs_at_once") {
  int stopped = 0;
  for (int seed = 0; seed < 12; ++seed) stopped += run_at_once(seed, "1");
  CHECK(stopped > 0);  // else nothing was at once, and this test has shown nothing
}

// The rank whose peer was stopped and has gone is stopped after a grace of ten seconds.
TEST_CASE("case_20_without_timeout") {
  int stopped = 0;
  for (int seed = 0; seed < 2; ++seed) stopped += run_at_once(seed, nullptr);
  CHECK(stopped > 0);
}
