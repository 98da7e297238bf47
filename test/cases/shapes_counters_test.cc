// Case 37, the part that needs no clock: the counters equal the calls made, and the cap of the log
// line is the one in use.
#include "test/cases/client.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

constexpr uint32_t kMade = 1, kAbove = 2;  // flags: calls made, calls above the cap, of one rank

}  // namespace

// Eager, in groups, captured, with errors, on two communicators; every rank counts what it calls.
TEST_CASE("job: counted calls", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect(0), other = rank.connect(1);
  const Stream stream;
  constexpr size_t kBytes = (128 << 10) + 64;  // above every cap here
  Memory send(kBytes), recv(kBytes);
  const size_t cap = rank.shared.flags[0].load();
  uint32_t made = 0, above = 0;
  const auto call = [&](ncclComm_t on, size_t bytes) {
    ++made;
    above += bytes > cap;
    NCCL(ncclAllReduce(send.at(), recv.at(), bytes / 4, ncclFloat32, ncclSum, on, stream));
  };
  for (size_t bytes = 4; bytes <= kBytes; bytes *= 2) call(made % 3 == 0 ? other : comm, bytes);
  for (const size_t bytes : {cap - 4, cap, cap + 4}) call(comm, bytes);
  // The fused ones of case 37, more of them than the cap takes, and a group that holds both kinds.
  NCCL(ncclGroupStart());
  for (int i = 0; i < 100; ++i) call(comm, 32);
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupStart());
  for (size_t i = 0; i < cap / 512 + 1; ++i) call(comm, 512);
  above += static_cast<uint32_t>(cap / 512 + 1);
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupStart());
  call(comm, 512);
  call(other, kBytes);
  NCCL(ncclGroupEnd());
  const Graph graph(stream, [&] {
    call(comm, 1024);
    call(comm, kBytes);
    call(other, 128);
  });
  for (int i = 0; i < 5; ++i) graph.launch(stream);  // not calls
  stream.wait();
  if (rank.rank == 0) {
    rank.set(kMade, made);
    rank.set(kAbove, above);
  }
  rank.barrier();
  NCCL(ncclCommDestroy(comm));
  NCCL(ncclCommDestroy(other));
}

TEST_CASE("case_37_counters_and_cap_line") {
  const auto run = [](JobOptions all, uint32_t cap, bool on) {
    Job job("counted calls", all);
    job.shared().flags[0].store(cap);
    REQUIRE(job.trouble(60) == "");
    const std::string output = job.output();
    INFO(output);
    const unsigned made = job.shared().flags[kMade].load(),
                   above = job.shared().flags[kAbove].load();
    REQUIRE(made > 120);
    CHECK(total(output, "shunted") == 2 * (on ? made - above : 0));
    CHECK(total(output, "forwarded") == 2 * (on ? above : made));
    CHECK(total(output, "communicators") == (on ? 2 * 2 : 0));
    const std::string line = "on, push, cap " + std::to_string(cap) + " bytes";
    CHECK(lines_of(output, "info", {line}).size() == (on ? 2 : 0));
  };
  JobOptions fixed, standard, off;
  fixed.environment["SHUNT_CAP"] = "5000";
  run(fixed, 5000, true);
  run(standard, 128 << 10, true);
  off.environment["SHUNT_ENABLE"] = "off";
  run(off, 5000, false);
}

// Nobody's setting: measured. The fixed cap is another one for three ranks and more.
TEST_CASE("case_37_default_caps") {
  for (const int ranks : numbers_of_ranks({2, 3})) {
    JobOptions all;
    all.ranks = ranks;
    for (const std::string setting : {"(unset)", "fixed"}) {
      all.environment["SHUNT_CAP"] = setting;
      Job job("nothing", all);
      REQUIRE(job.trouble(60) == "");
      INFO(setting << job.output());
      const size_t measured = lines_of(job.output(), "info", {" bytes (measured)"}).size() +
                              lines_of(job.output(), "info", {"NCCL is faster"}).size();
      const std::string fixed = ranks == 2 ? "cap 131072 bytes" : "cap 65536 bytes";
      CHECK(measured == (setting == "fixed" ? 0u : 1u));
      if (setting == "fixed") CHECK(lines_of(job.output(), "info", {fixed}).size() == 1);
      CHECK(total(job.output(), "shunted") + total(job.output(), "forwarded") == 0);
    }
  }
}

TEST_CASE("job: nothing", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  rank.barrier();
  NCCL(ncclCommDestroy(comm));
}
