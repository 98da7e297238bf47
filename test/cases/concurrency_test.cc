// Cases 22 to 25: streams, communicators and splits, environments of the driver, a busy GPU.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

void expect_right(Job& job, double seconds = 60) {
  CHECK(job.trouble(seconds) == "");
  CHECK(count_of(job.output(), "all right\n") == static_cast<size_t>(job.ranks()));
  CHECK(count_of(job.output(), "emulated cuda:") == 0);  // no misuse
}

}  // namespace

// ---- 22
// --------------------------------------------------------------------------------------------------

// Calls alternate between two streams, ten of them under way at once; small, up to the cap, and
// above.
TEST_CASE("job: two streams", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream streams[2];
  constexpr size_t kSizes[] = {8, 4096, 64, 20000, 131072, 4096, 12, 262144, 2048, 65536};
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (const size_t bytes : kSizes) {
    exchanges.push_back(std::make_unique<Exchange>(bytes, bytes == 12 ? ncclUint32 : ncclFloat32));
  }
  Random delay(static_cast<uint64_t>(rank.rank));
  const int calls = number_of("CASES_CALLS");
  for (int call = 0; call < calls; call += static_cast<int>(exchanges.size())) {
    for (size_t i = 0; i < exchanges.size(); ++i) {
      exchanges[i]->fill(static_cast<uint64_t>(call) + i, rank.rank, streams[i % 2]);
    }
    for (size_t i = 0; i < exchanges.size(); ++i) {
      if (delay.below(6) == 0) pause_us(delay.below(500));
      exchanges[i]->call(comm, streams[i % 2]);
    }
    for (size_t i = 0; i < exchanges.size(); ++i) exchanges[i]->fetch(streams[i % 2]);
    for (const Stream& stream : streams) stream.wait();
    for (const auto& exchange : exchanges) exchange->check(rank.ranks);
  }
  done(rank, {comm});
}

TEST_CASE("case_22_two_streams") {
  Job job("two streams", {.environment = {{"CASES_CALLS", "2000"}}});
  expect_right(job);
  CHECK(total(job.output(), "shunted") == 2 * 1800);
  CHECK(total(job.output(), "forwarded") == 2 * 200);
}

// In place on one buffer from both streams in turn, with no order but NCCL's: that of the calls. A
// call covers a prefix, short ones are shunted and long ones forwarded; each doubles what it
// covers.
TEST_CASE("job: chain", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream streams[2];
  constexpr size_t kWords = 65536;
  const Memory buffer(kWords * 4);
  const Pinned host(kWords * 4);
  Random random(22);  // alike on all ranks
  for (uint64_t round = 0; round < 60; ++round) {
    std::vector<uint32_t> want(kWords);
    for (size_t i = 0; i < kWords; ++i) {
      host.words()[i] = word_of(round, rank.rank, i);
      want[i] = word_of(round, 0, i) + word_of(round, 1, i);
    }
    CU(cuMemcpyHtoDAsync(buffer.address(), host.words(), kWords * 4, streams[0]));
    streams[0].wait();
    for (int call = 0; call < 12; ++call) {
      // The first covers everything, so that the two ranks hold the same from then on.
      const size_t words = call == 0 || random.below(4) == 0 ? kWords : random.below(4096) + 1;
      NCCL(ncclAllReduce(buffer.at(), buffer.at(), words, ncclUint32, ncclSum, comm,
                         streams[random.below(2)]));
      for (size_t i = 0; call > 0 && i < words; ++i) want[i] *= 2;
    }
    for (const Stream& stream : streams) stream.wait();
    CU(cuMemcpyDtoHAsync(host.words(), buffer.address(), kWords * 4, streams[0]));
    streams[0].wait();
    ENSURE(std::memcmp(host.words(), want.data(), kWords * 4) == 0);
  }
  done(rank, {comm});
}

TEST_CASE("case_22_order_across_streams") {
  Job job("chain", {.environment = {{"EMU_KERNEL_DELAY_US", "*:300"}}});
  expect_right(job);
  CHECK(total(job.output(), "shunted") > 2 * 200);
  CHECK(total(job.output(), "forwarded") > 2 * 60);
}

namespace {

// A capture over two streams that nothing but the calls joins until its end.
struct Capture {
  Capture() {
    CU(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CU(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    join(0, 1);
  }
  ~Capture() {
    cuGraphExecDestroy(exec);
    cuEventDestroy(event);
  }
  Capture(const Capture&) = delete;
  void join(int from, int to) const {
    CU(cuEventRecord(event, streams[from]));
    CU(cuStreamWaitEvent(streams[to], event, 0));
  }
  void end() {
    CUgraph graph = nullptr;
    join(1, 0);
    CU(cuStreamEndCapture(streams[0], &graph));
    CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CU(cuGraphDestroy(graph));
  }

  Stream streams[2];
  CUevent event = nullptr;
  CUgraphExec exec = nullptr;
};

}  // namespace

// Several captures under way at once, a call in each in turn: the order within each of them. As above, each call
// doubles a prefix; every third is forwarded.
TEST_CASE("job: captures", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  constexpr size_t kWords = 65536, kShort = 1024;
  constexpr int kCalls = 6;
  const Memory buffer(kWords * 4);
  const Pinned host(kWords * 4);
  const Stream stream;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<std::unique_ptr<Capture>> captures(static_cast<size_t>(number_of("CASES_CAPTURES")));
    for (auto& capture : captures) capture = std::make_unique<Capture>();
    for (int call = 0; call < kCalls; ++call) {
      const size_t words = call % 3 == 0 ? kWords : kShort;
      for (const auto& capture : captures) {
        NCCL(ncclAllReduce(buffer.at(), buffer.at(), words, ncclUint32, ncclSum, comm,
                           capture->streams[call % 2]));
      }
    }
    for (auto& capture : captures) capture->end();
    for (uint64_t replay = 0; replay < 2 * captures.size(); ++replay) {
      std::vector<uint32_t> want(kWords);
      for (size_t i = 0; i < kWords; ++i) {
        host.words()[i] = word_of(replay, rank.rank, i);
        want[i] = (word_of(replay, 0, i) + word_of(replay, 1, i)) << (i < kShort ? kCalls - 1 : 1);
      }
      CU(cuMemcpyHtoDAsync(buffer.address(), host.words(), kWords * 4, stream));
      CU(cuGraphLaunch(captures[replay % captures.size()]->exec, stream));
      CU(cuMemcpyDtoHAsync(host.words(), buffer.address(), kWords * 4, stream));
      stream.wait();
      ENSURE(std::memcmp(host.words(), want.data(), kWords * 4) == 0);
    }
  }
  done(rank, {comm});
}

TEST_CASE("case_22_order_in_many_captures") {
  for (const char* captures : {"4", "5", "40"}) {
    INFO(captures);
    Job job("captures", {.environment = {{"EMU_KERNEL_DELAY_US", "*:300"}, {"CASES_CAPTURES", captures}}});
    expect_right(job);
  }
}

// ---- 23
// --------------------------------------------------------------------------------------------------

namespace {

// Rounds on two communicators at once, a stream each; ranks and sizes of each.
void side_by_side(const ncclComm_t (&comms)[2], const int (&own)[2], const int (&sizes)[2],
                  int rounds) {
  const Stream streams[2];
  Exchange exchanges[2] = {Exchange(4096), Exchange(20000)};
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 2; ++i) {
      exchanges[i].fill(static_cast<uint64_t>(round * 2 + i), own[i], streams[i]);
      exchanges[i].call(comms[i], streams[i]);
      exchanges[i].fetch(streams[i]);
    }
    for (int i = 0; i < 2; ++i) {
      streams[i].wait();
      exchanges[i].check(sizes[i]);
    }
  }
}

}  // namespace

TEST_CASE("job: two communicators", "[.]") {
  Rank rank;
  const ncclComm_t comms[2] = {rank.connect(0), rank.connect(1)};
  side_by_side(comms, {rank.rank, rank.rank}, {rank.ranks, rank.ranks}, 500);
  done(rank, {comms[0], comms[1]});
}

TEST_CASE("case_23_two_communicators") {
  Job job("two communicators");
  expect_right(job);
  CHECK(lines_of(job.output(), "info", {": on,"}).size() == 2);
  CHECK(total(job.output(), "shunted") == 2 * 1000);
}

TEST_CASE("job: world and splits", "[.]") {
  Rank rank;
  const ncclComm_t world = rank.connect();
  ncclComm_t pair = nullptr, cross = nullptr;
  NCCL(ncclCommSplit(world, rank.rank / 2, rank.rank, &pair, nullptr));
  // The order of ranks is turned round: rank 3 or 2 is rank 0 here.
  NCCL(ncclCommSplit(world, rank.rank % 2, -rank.rank, &cross, nullptr));
  side_by_side({world, pair}, {rank.rank, rank.rank % 2}, {4, 2}, 150);
  side_by_side({cross, world}, {1 - rank.rank / 2, rank.rank}, {2, 4}, 150);
  side_by_side({pair, cross}, {rank.rank % 2, 1 - rank.rank / 2}, {2, 2}, 150);
  done(rank, {cross, pair, world});
}

TEST_CASE("case_23_world_and_splits") {
  Job job("world and splits", {.ranks = 4});
  expect_right(job);
  CHECK(lines_of(job.output(), "info", {": on,"}).size() == 5);
  CHECK(total(job.output(), "shunted") == 4 * 900);
}

// ---- 24
// --------------------------------------------------------------------------------------------------

TEST_CASE("case_24_loading_blocking_connections") {
  const Environment variants[] = {{{"CUDA_MODULE_LOADING", "LAZY"}},
                                  {{"CUDA_LAUNCH_BLOCKING", "1"}},
                                  {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}}};
  for (const Environment& variant : variants) {
    INFO(variant.begin()->first);
    const TemporaryFile trace("case-24-trace");
    Environment environment = variant;
    environment.insert({{"CASES_CALLS", "500"}, {"EMU_TRACE", trace.path()}});
    Job job("two streams", {.environment = environment});
    expect_right(job);
    CHECK(total(job.output(), "shunted") == 2 * 450);
    // A lazy load waits for running kernels: after the first launch it could wait for ever.
    for (int rank = 0; rank < 2; ++rank) {
      const std::string head = std::to_string(job.pid(rank)) + " ";
      bool launched = false;
      size_t loads = 0, late = 0;
      std::istringstream lines(read_file(trace.path()));
      for (std::string line; std::getline(lines, line);) {
        if (line.rfind(head, 0) != 0) continue;
        launched = launched || count_of(line, " launch shunt_") != 0;
        if (count_of(line, " lazy-load shunt_") == 0) continue;
        ++loads;
        late += launched ? 1 : 0;
      }
      CHECK(launched);
      CHECK(late == 0);
      CHECK(loads > 20);
    }
  }
}

// ---- 25
// --------------------------------------------------------------------------------------------------

TEST_CASE("job: busy", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (const size_t bytes : {64, 4096, 8, 1024, 12288})
    exchanges.push_back(std::make_unique<Exchange>(bytes));
  const int calls = number_of("CASES_CALLS");
  for (int call = 0; call < calls; call += static_cast<int>(exchanges.size())) {
    for (const auto& exchange : exchanges)
      exchange->fill(static_cast<uint64_t>(call), rank.rank, stream);
    for (const auto& exchange : exchanges) exchange->call(comm, stream);
    for (const auto& exchange : exchanges) exchange->fetch(stream);
    stream.wait();
    for (const auto& exchange : exchanges) exchange->check(rank.ranks);
  }
  done(rank, {comm});
}

// What a busy GPU does to us: kernels on it start late, now a little, now by its time slice.
TEST_CASE("case_25_busy_gpu") {
  const std::pair<const char*, const char*> variants[] = {{"0:600", "10000"}, {"0:50000", "150"}};
  for (const auto& [delay, calls] : variants) {
    Job job("busy", {.environment = {{"EMU_KERNEL_DELAY_US", delay}, {"CASES_CALLS", calls}}});
    expect_right(job, 90);
    CHECK(total(job.output(), "shunted") == 2 * std::strtoull(calls, nullptr, 10));
  }
}

// So late that waits in the probe are reported, which is no reason to refuse: only the deadline is.
TEST_CASE("case_25_busy_while_preparing") {
  Job job("busy", {.environment = {{"EMU_KERNEL_DELAY_US", "0:400000"}, {"CASES_CALLS", "5"}}});
  expect_right(job);
  CHECK(total(job.output(), "shunted") == 2 * 5);
  CHECK(lines_of(job.output(), "warning").empty());
}
