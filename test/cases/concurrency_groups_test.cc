// Case 26: groups.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

// Of a graph that captures `work`.
size_t nodes_of(CUstream stream, const std::function<void()>& work) {
  CUgraph graph = nullptr;
  size_t nodes = 0;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  work();
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphGetNodes(graph, nullptr, &nodes));
  CU(cuGraphDestroy(graph));
  return nodes;
}

}  // namespace

// Two all-reduces in one group, a small and a large one in either order, groups inside groups, and
// one group on two streams; eagerly and captured.
TEST_CASE("job: groups", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream streams[2];
  Exchange small(64), middle(4096), large(262144);
  const std::vector<Exchange*> orders[] = {
      {&small, &middle}, {&small, &large}, {&large, &middle}, {&middle, &large, &small}};
  uint64_t seed = 0;
  for (int round = 0; round < 50; ++round) {
    for (const auto& order : orders) {
      for (const int width : {1, 2}) {
        const auto stream_of = [&](size_t i) -> const Stream& {
          return streams[i % static_cast<size_t>(width)];
        };
        for (size_t i = 0; i < order.size(); ++i) order[i]->fill(++seed, rank.rank, stream_of(i));
        NCCL(ncclGroupStart());
        for (size_t i = 0; i < order.size(); ++i) {
          NCCL(ncclGroupStart());
          order[i]->call(comm, stream_of(i));
          NCCL(ncclGroupEnd());
        }
        NCCL(ncclGroupEnd());
        for (size_t i = 0; i < order.size(); ++i) order[i]->fetch(stream_of(i));
        for (const Stream& stream : streams) stream.wait();
        for (const Exchange* exchange : order) exchange->check(rank.ranks);
      }
    }
  }
  const Graph graph(streams[0], [&] {
    NCCL(ncclGroupStart());
    small.call(comm, streams[0]);
    large.call(comm, streams[0]);
    middle.call(comm, streams[0]);
    NCCL(ncclGroupEnd());
  });
  const Graph shunted(streams[0], [&] {
    NCCL(ncclGroupStart());
    small.call(comm, streams[0]);
    middle.call(comm, streams[0]);
    NCCL(ncclGroupEnd());
  });
  for (int replay = 0; replay < 50; ++replay) {
    std::vector<Exchange*> replayed{&small, &middle};
    if (replay % 2 == 0) replayed.push_back(&large);
    for (Exchange* exchange : replayed) exchange->fill(++seed, rank.rank, streams[0]);
    (replay % 2 == 0 ? graph : shunted).launch(streams[0]);
    for (Exchange* exchange : replayed) exchange->fetch(streams[0]);
    streams[0].wait();
    for (Exchange* exchange : replayed) exchange->check(rank.ranks);
  }
  done(rank, {comm});
}

TEST_CASE("case_26_groups") {
  Job job("groups");
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(count_of(job.output(), "emulated cuda:") == 0);
  CHECK(total(job.output(), "shunted") == 2 * (50 * 2 * 2 + 2));
  CHECK(total(job.output(), "forwarded") == 2 * (50 * 2 * 7 + 3));
}

// Many calls of two types in one group: one kernel for each type and each 128 calls.
TEST_CASE("job: fused", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream streams[2];
  Random all(41);
  std::vector<std::unique_ptr<Exchange>> exchanges;
  for (size_t i = 0; i < 200; ++i) {
    const ncclDataType_t type = i % 4 == 3 ? ncclUint32 : ncclFloat32;
    exchanges.push_back(std::make_unique<Exchange>(4 * (1 + all.below(120)), type, i % 5 == 0));
  }
  const Memory word(4);  // broadcast
  const auto call = [&](size_t first, size_t count, size_t width, bool broadcast) {
    NCCL(ncclGroupStart());
    for (size_t i = first; i < first + count; ++i) {
      if (broadcast && i == first + count / 2) {
        NCCL(ncclBroadcast(word.at(), word.at(), 1, ncclInt32, 0, comm, streams[0]));
      }
      exchanges[i]->call(comm, streams[i % width]);
    }
    NCCL(ncclGroupEnd());
  };
  const auto nodes = [&](size_t count) { return nodes_of(streams[0], [&] { call(0, count, 1, false); }); };
  ENSURE(nodes(3) == 1);    // three of fp32
  ENSURE(nodes(8) == 2);    // and two of uint32
  ENSURE(nodes(170) == 2);  // 128 and 42
  ENSURE(nodes(200) == 3);  // 150 and 50
  for (uint64_t round = 0; round < 60; ++round) {
    const size_t count = 1 + all.below(round % 10 == 0 ? 199 : 30), first = all.below(200 - count);
    const size_t width = 1 + all.below(2);
    for (size_t i = first; i < first + count; ++i) exchanges[i]->fill(round, rank.rank, streams[i % width]);
    call(first, count, width, all.below(3) == 0);
    for (size_t i = first; i < first + count; ++i) exchanges[i]->fetch(streams[i % width]);
    for (const Stream& stream : streams) stream.wait();
    for (size_t i = first; i < first + count; ++i) exchanges[i]->check(rank.ranks);
  }
  done(rank, {comm});
}

TEST_CASE("case_26_fused") {
  Job job("fused", {.ranks = 3});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 3);
  CHECK(count_of(job.output(), "emulated cuda:") == 0);
  CHECK(total(job.output(), "shunted") > 3 * 60);
  CHECK(total(job.output(), "forwarded") == 0);
}

// What NCCL runs on one stream of a group follows what was on the communicator's other streams; eagerly and captured.
TEST_CASE("job: joined streams", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream streams[2];
  constexpr size_t kWords = 2048;
  const Memory part(kWords * 4), whole(kWords * 4 * static_cast<size_t>(rank.ranks)), small(64);
  std::vector<float> values(kWords);
  const auto late = [](void*) { pause_us(30'000); };
  const auto group = [&](bool first) {  // the all-reduce before the all-gather, or behind it
    NCCL(ncclGroupStart());
    if (first) NCCL(ncclAllReduce(small.at(), small.at(), 16, ncclFloat32, ncclSum, comm, streams[1]));
    NCCL(ncclAllGather(part.at(), whole.at(), kWords, ncclFloat32, comm, streams[0]));
    if (!first) NCCL(ncclAllReduce(small.at(), small.at(), 16, ncclFloat32, ncclSum, comm, streams[1]));
    NCCL(ncclGroupEnd());
  };
  for (int round = 0; round < 4; ++round) {
    const float value = static_cast<float>(round * 100 + rank.rank + 1);
    std::fill(values.begin(), values.end(), value);
    whole.fill(0x7b);
    part.fill(0x7b);
    CU(cuLaunchHostFunc(streams[1], late, nullptr));
    CU(cuMemcpyHtoDAsync(part.address(), values.data(), kWords * 4, streams[1]));
    group(round % 2 == 0);
    for (const Stream& stream : streams) stream.wait();
    for (int other = 0; other < rank.ranks; ++other) {
      const Bytes got = whole.get(kWords * 4, static_cast<size_t>(other) * kWords * 4);
      std::fill(values.begin(), values.end(), static_cast<float>(round * 100 + other + 1));
      ENSURE(got == as_bytes(values));
    }
  }
  done(rank, {comm});
}

TEST_CASE("case_26_streams_of_a_group_are_joined") {
  Job job("joined streams");
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(total(job.output(), "shunted") == 2 * 4);
}

// Another thread aborts communicators, more than are remembered, while this one has queued calls of the first and of
// one that lives: its call is made, for its peers wait.
TEST_CASE("job: aborted in a group", "[.]") {
  Rank rank;
  const Stream stream;
  std::vector<ncclComm_t> comms;
  for (int slot = 0; slot < 14; ++slot) comms.push_back(rank.connect(slot));
  const Memory data(64);
  const ncclComm_t living = comms.back();
  comms.pop_back();
  Exchange exchange(512);
  exchange.fill(7, rank.rank, stream);
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(data.at(), data.at(), 16, ncclFloat32, ncclSum, comms[0], stream));
  exchange.call(living, stream);
  std::thread([&] {
    CU(cuCtxSetCurrent(rank.context));
    for (const ncclComm_t comm : comms) NCCL(ncclCommAbort(comm));
  }).join();
  ENSURE(ncclGroupEnd() == ncclInvalidUsage);
  exchange.fetch(stream);
  stream.wait();
  exchange.check(rank.ranks);
  done(rank, {living});
}

TEST_CASE("case_26_aborted_in_a_group") {
  Job job("aborted in a group", {.environment = {{"MALLOC_PERTURB_", "165"}}});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 2);
}

// NCCL's rule for the streams of a communicator in a group: one graph captures all of them, or none.
TEST_CASE("job: half captured", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream streams[2];
  Exchange first(512), second(1024);
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  NCCL(ncclGroupStart());
  first.call(comm, streams[0]);
  ENSURE(ncclAllReduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, streams[1]) == ncclInvalidUsage);
  ENSURE(ncclGroupEnd() == ncclInvalidUsage);
  CU(cuStreamEndCapture(streams[0], &graph));
  CU(cuGraphDestroy(graph));
  for (uint64_t round = 0; round < 3; ++round) second.run(round, rank.rank, rank.ranks, comm, streams[1]);
  done(rank, {comm});
}

TEST_CASE("case_26_half_captured") {
  Job job("half captured");
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(lines_of(job.output(), "error", {"must all be captured by the same graph"}).size() == 2);
  CHECK(total(job.output(), "shunted") == 2 * 3);
}

// Every sequence of four calls, small and large, on the world and on a split, in one group. The split of
// rank 0 is its own, so there its calls are all forwarded, and elsewhere only the large ones: which of the
// world's calls come before NCCL's group must not follow from that.
TEST_CASE("job: two communicators in a group", "[.]") {
  Rank rank;
  const ncclComm_t world = rank.connect();
  ncclComm_t side = nullptr;
  NCCL(ncclCommSplit(world, rank.rank == 0 ? 0 : 1, rank.rank, &side, nullptr));
  const ncclComm_t comms[2] = {world, side};
  const int own[2] = {rank.rank, rank.rank == 0 ? 0 : rank.rank - 1};
  const int ranks[2] = {rank.ranks, rank.rank == 0 ? 1 : rank.ranks - 1};
  const Stream stream;
  std::vector<std::unique_ptr<Exchange>> exchanges;  // at 2 * place: a small one, then a large one
  for (size_t i = 0; i < 8; ++i) exchanges.push_back(std::make_unique<Exchange>(i % 2 == 0 ? 512 : 2048));
  for (size_t sequence = 0; sequence < 256; ++sequence) {
    const auto each = [&](auto&& work) {
      for (size_t place = 0; place < 4; ++place) {
        const size_t choice = sequence >> 2 * place & 3;
        work(*exchanges[2 * place + choice % 2], choice / 2);
      }
    };
    each([&](Exchange& exchange, size_t on) { exchange.fill(sequence, own[on], stream); });
    NCCL(ncclGroupStart());
    each([&](Exchange& exchange, size_t on) { exchange.call(comms[on], stream); });
    NCCL(ncclGroupEnd());
    each([&](Exchange& exchange, size_t) { exchange.fetch(stream); });
    if (stream.end(20) != CUDA_SUCCESS) {
      std::printf("sequence %zu hangs\n", sequence);
      std::fflush(stdout);
      std::_Exit(3);  // freeing memory would wait for the kernel that never ends
    }
    each([&](Exchange& exchange, size_t on) { exchange.check(ranks[on]); });
  }
  done(rank, {side, world});
}

TEST_CASE("case_26_two_communicators_in_a_group") {
  Job job("two communicators in a group", {.ranks = 3, .environment = {{"SHUNT_CAP", "1024"}}});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 3);
  CHECK(count_of(job.output(), "emulated cuda:") == 0);
  // The world's are shunted where they are no more than two small ones, and so are the side's of two ranks.
  unsigned shunted = 0;
  for (size_t sequence = 0; sequence < 256; ++sequence) {
    for (const size_t on : {size_t{0}, size_t{1}}) {
      size_t calls = 0, bytes = 0;
      for (size_t place = 0; place < 4; ++place) {
        const size_t choice = sequence >> 2 * place & 3;
        if (choice / 2 != on) continue;
        ++calls;
        bytes += choice % 2 == 0 ? 512 : 2048;
      }
      if (bytes <= 1024) shunted += static_cast<unsigned>((on == 0 ? 3 : 2) * calls);
    }
  }
  CHECK(total(job.output(), "shunted") == shunted);
  CHECK(total(job.output(), "forwarded") == 3 * 1024 - shunted);
}

// NCCL runs each shunted call too, once the group has ended.
TEST_CASE("case_26_verified_in_groups") {
  const struct {
    const char* job;
    int ranks;
    unsigned captured;
    Environment more;
  } all[] = {{"one thread", 1, 0, {}},
             {"threads", 1, 0, {}},
             {"groups", 2, 4, {}},
             {"two communicators in a group", 3, 0, {{"SHUNT_CAP", "1024"}}}};
  for (const auto& one : all) {
    const TemporaryFile log("case-26-log");  // threads that write to one output lose lines
    Environment environment = one.more;
    environment.insert(
        {{"SHUNT_VERIFY", "1"}, {"SHUNT_LOG", "debug"}, {"SHUNT_LOG_FILE", log.path()}});
    Job job(one.job, {.ranks = one.ranks, .environment = environment});
    CHECK(job.trouble() == "");
    INFO(job.output());
    CHECK(count_of(job.output(), "all right\n") == static_cast<size_t>(one.ranks));
    const std::string said = read_file(log.path());
    CHECK(count_of(said, "is as NCCL's") == total(said, "shunted") - one.captured);
    CHECK(total(said, "shunted") > 100);
    CHECK(count_of(said, " error: ") == 0);
  }
}
