// SHUNT_VERIFY: NCCL runs some of the shunted calls too. Case 6's little sister: writes that are
// changed, not lost, after the probe.
#include <cstdio>
#include <cstdlib>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

constexpr int kRounds = 200;  // of four calls each
const std::string kSame = "is as NCCL's";
const std::string kDiffers = "differs from NCCL by more than rounding";

}  // namespace

// Results that are wrong are counted and not complained about.
TEST_CASE("job: exchanges", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream first, second;
  Exchange floats(4096), in_place(1000, ncclFloat32, true), words(16384, ncclUint32, true),
      large(1 << 20);
  const std::pair<Exchange*, const Stream*> calls[] = {
      {&floats, &first}, {&in_place, &second}, {&words, &first}, {&large, &second}};
  int wrong = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (const auto& [exchange, stream] : calls) {
      try {
        exchange->run(round, rank.rank, rank.ranks, comm, *stream);
      } catch (const std::runtime_error&) {
        ++wrong;
      }
    }
  }
  std::printf("wrong %d\n", wrong);
  NCCL(ncclCommDestroy(comm));
}

// Any bits at all, in every type and operation.
TEST_CASE("job: noise", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  const Memory send(40000), recv(40000);
  constexpr size_t kSizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  Random random(static_cast<uint64_t>(rank.rank) + 7);
  for (int round = 0; round < 3; ++round) {
    for (int type = 0; type < ncclNumTypes; ++type) {
      for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
        Bytes data(send.bytes());
        const bool wild = round == 0;  // else numbers near one, of both signs
        for (size_t i = 0; i < data.size(); ++i) {
          data[i] = static_cast<unsigned char>(random.next());
          if (!wild && type == ncclFloat32 && i % 4 == 3) data[i] = (data[i] & 0x80) | 0x3f;
          if (!wild && type == ncclFloat64 && i % 8 == 7) data[i] = (data[i] & 0x80) | 0x3f;
          if (!wild && type == ncclBfloat16 && i % 2 == 1) data[i] = (data[i] & 0x80) | 0x3f;
          if (!wild && type == ncclFloat16 && i % 2 == 1) data[i] = (data[i] & 0x83) | 0x38;
        }
        send.put(data);
        const size_t element = kSizes[type];
        NCCL(ncclAllReduce(send.at(element), recv.at(), 38000 / element,
                           static_cast<ncclDataType_t>(type), op, comm, stream));
        stream.wait();
      }
    }
  }
  NCCL(ncclCommDestroy(comm));
}

// The calls of a group run as one kernel.
TEST_CASE("job: exchanges in groups", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream first, second;
  Exchange floats(1000), in_place(76, ncclFloat32, true), more(5000), words(996, ncclUint32);
  const std::pair<Exchange*, const Stream*> calls[] = {
      {&floats, &first}, {&in_place, &second}, {&words, &first}, {&more, &second}};
  int wrong = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    for (const auto& [exchange, stream] : calls) exchange->fill(round, rank.rank, *stream);
    NCCL(ncclGroupStart());
    for (const auto& [exchange, stream] : calls) exchange->call(comm, *stream);
    NCCL(ncclGroupEnd());
    for (const auto& [exchange, stream] : calls) {
      exchange->fetch(*stream);
      stream->wait();
      try {
        exchange->check(rank.ranks);
      } catch (const std::runtime_error&) {
        ++wrong;
      }
    }
  }
  std::printf("wrong %d\n", wrong);
  NCCL(ncclCommDestroy(comm));
}

// Captured calls are not verified, whatever runs between them.
TEST_CASE("job: captured", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  Exchange exchange(4096), eager(256);
  const Memory eager_memory(64);
  // An eager call while another thread captures; the first one, for which memory is allocated.
  const Stream captured;
  CU(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  std::string failure;
  std::thread([&] {
    try {
      CU(cuCtxSetCurrent(rank.context));
      NCCL(ncclAllReduce(eager_memory.at(), eager_memory.at(), 16, ncclFloat32, ncclSum, comm,
                         stream));
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }).join();
  CUgraph nothing = nullptr;
  CU(cuStreamEndCapture(captured, &nothing));
  CU(cuGraphDestroy(nothing));
  if (!failure.empty()) throw std::runtime_error(failure);
  const Graph graph(stream, [&] { exchange.call(comm, stream); });
  for (uint64_t round = 0; round < 20; ++round) {
    exchange.replay(graph, round, rank.rank, rank.ranks, stream);
    eager.run(round, rank.rank, rank.ranks, comm, stream);
  }
  NCCL(ncclCommDestroy(comm));
}

// The other rank never calls: whoever waits for it in the call is freed by an abort.
TEST_CASE("job: aborted", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  Exchange exchange(4096);
  exchange.run(1, rank.rank, rank.ranks, comm, stream);
  if (rank.rank == 0) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      NCCL(ncclCommAbort(comm));
    });
    exchange.fill(2, 0, stream);
    const Memory memory(4096);
    const ncclResult_t result =
        ncclAllReduce(memory.at(), memory.at(), 1024, ncclFloat32, ncclSum, comm, stream);
    std::printf("result %d\n", result);
    std::fflush(stdout);
    other.join();
  }
  rank.barrier();
  std::_Exit(0);
}

namespace {

Environment verified(const std::string& calls, Environment more = {}) {
  more.insert({{"SHUNT_VERIFY", calls}, {"SHUNT_LOG", "debug"}});
  return more;
}

}  // namespace

TEST_CASE("case_06_verified_calls") {
  // Of the 600 shunted calls of each rank; where ranks differ, as often as the keenest wants.
  for (const std::string other : {"3", "50", "(unset)"}) {
    JobOptions options{.ranks = 3, .environment = verified("3")};
    options.of_rank = [&](int rank) {
      return rank == 1 ? Environment{{"SHUNT_VERIFY", other}} : Environment{};
    };
    Job job("exchanges", options);
    REQUIRE(job.trouble(60) == "");
    INFO(job.output());
    CHECK(count_of(job.output(), "wrong 0\n") == 3);
    CHECK(lines_of(job.output(), "debug", {kSame}).size() == 3 * kRounds);
    CHECK(lines_of(job.output(), "error").empty());
    CHECK(total(job.output(), "shunted") == 3 * 3 * kRounds);
  }
  Job job("exchanges");
  REQUIRE(job.trouble(60) == "");
  CHECK(count_of(job.output(), "SHUNT_VERIFY") == 0);
}

// After the probe, and after some good calls: one bit of what rank 0 sends to rank 1.
TEST_CASE("case_06_changed_writes_are_found") {
  for (const int every : {1, 7}) {
    Job job("exchanges",
            {.ranks = 3,
             .environment = verified(std::to_string(every), {{"EMU_CORRUPT", "0>1:after=500"}})});
    REQUIRE(job.trouble(60) == "");
    INFO(job.output());
    for (int rank = 0; rank < 3; ++rank) {
      const auto lines = lines_of(job.output(rank), "error", {kDiffers});
      REQUIRE(lines.size() == 1);
      CHECK(lines[0].find("rank " + std::to_string(rank) + ": call ") != std::string::npos);
      CHECK((lines[0].find("; 0 elements are wrong on this rank") == std::string::npos) ==
            (rank == 1));
      CHECK(total(job.output(rank), "shunted") + total(job.output(rank), "forwarded") ==
            4 * kRounds);
      CHECK(total(job.output(rank), "shunted") == total(job.output(0), "shunted"));
    }
    CHECK(total(job.output(0), "shunted") % static_cast<unsigned>(every) == 0);
    CHECK(total(job.output(0), "shunted") < 3 * kRounds);
    CHECK(lines_of(job.output(), "debug", {kSame}).size() > 3);
    if (every == 1) CHECK(count_of(job.output(), "wrong 0\n") == 3);  // the user got NCCL's result
  }
}

TEST_CASE("case_06_verified_groups") {
  Job good("exchanges in groups", {.ranks = 3, .environment = verified("3")});
  REQUIRE(good.trouble(60) == "");
  INFO(good.output());
  CHECK(count_of(good.output(), "wrong 0\n") == 3);
  CHECK(lines_of(good.output(), "debug", {kSame}).size() == 3 * (4 * kRounds / 3));
  CHECK(lines_of(good.output(), "error").empty());

  // One bit in a kernel of several messages: of the calls in that group one is told, and all get
  // NCCL's results.
  Job bad("exchanges in groups",
          {.ranks = 3,
           .environment = verified("1", {{"EMU_CORRUPT", "0>1:kernel=_grouped_:after=150"}})});
  REQUIRE(bad.trouble(60) == "");
  INFO(bad.output());
  CHECK(count_of(bad.output(), "wrong 0\n") == 3);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(lines_of(bad.output(rank), "error", {kDiffers, " of 3 in a group)"}).size() == 1);
    CHECK(total(bad.output(rank), "shunted") > 40);
    CHECK(total(bad.output(rank), "forwarded") > 4 * kRounds / 2);
  }
}

TEST_CASE("case_06_rounding_is_no_difference") {
  Job job("noise", {.ranks = 4, .environment = verified("1")});
  REQUIRE(job.trouble(100) == "");
  INFO(job.output());
  CHECK(lines_of(job.output(), "error").empty());
  CHECK(lines_of(job.output(), "debug", {kSame}).size() == 4 * 3 * 12 * 5);
}

TEST_CASE("case_06_captured_calls_are_not_verified") {
  const TemporaryFile trace("case-06-verified-trace");
  Job job("captured", {.environment = verified("1", {{"EMU_NCCL_TRACE", trace.path()}})});
  REQUIRE(job.trouble(60) == "");
  INFO(job.output());
  CHECK(lines_of(job.output(), "debug", {kSame}).size() == 2 * (20 + 1));
  CHECK(lines_of(job.output(), "error").empty());
  CHECK(count_of(read_file(trace.path()), "capture=1") == 0);
}

TEST_CASE("case_06_abort_ends_a_verification") {
  Job job("aborted", {.environment = verified("1")});
  CHECK(job.trouble(40) == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "result 5\n") ==
        1);  // ncclInvalidUsage, as of every call after an abort
}
