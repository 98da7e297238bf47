// Cases 29 and 30: communicators that come and go, early, late, never used, never destroyed.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "test/cases/client.h"
#include "test/cases/job.h"
#include "test/cases/life_lines.h"
#include "test/catch.h"

using namespace cases;

namespace {

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

size_t entries_in(const char* folder) {
  size_t entries = 0;
  DIR* opened = opendir(folder);
  ENSURE(opened != nullptr);
  while (readdir(opened) != nullptr) ++entries;
  closedir(opened);
  return entries;
}

// What 1,000 communicators may not use up.
struct Resources {
  size_t free_memory = 0;
  unsigned long ipc_opens = 0, allocations = 0;
  size_t files = 0, threads = 0;

  static Resources now() {
    Resources r;
    size_t total = 0;
    CU(cuMemGetInfo(&r.free_memory, &total));
    r.ipc_opens = lines(Line::kIpcOpen);
    r.allocations = lines(Line::kAllocation);
    r.files = entries_in("/proc/self/fd");
    r.threads = entries_in("/proc/self/task");
    return r;
  }
};

void require_quiet(const Job& job) {
  const std::string output = job.output();
  INFO(output);
  CHECK(lines_of(output, "error").empty());
  CHECK(lines_of(output, "warning").empty());
  CHECK(output.find("misuse") == std::string::npos);
  CHECK(output.find("emulated") == std::string::npos);
}

}  // namespace

TEST_CASE("job: thousand", "[.]") {
  const Rank rank;
  const Stream stream;
  constexpr size_t kCount = 500;
  Memory send(kCount * 4), recv(kCount * 4);
  Resources before;
  for (int life = 0; life < 1000; ++life) {
    // Baseline once everything that is kept for later is there.
    if (life == 100) before = Resources::now();
    const auto round = static_cast<uint32_t>(life);
    const ncclComm_t comm = rank.connect(life);
    send.put(as_bytes(exact_inputs(rank.rank, kCount, round)));
    recv.fill(0x7b);
    NCCL(ncclAllReduce(send.at(), recv.at(), kCount, ncclFloat32, ncclSum, comm, stream));
    stream.wait();
    ENSURE(recv.get(kCount * 4) == as_bytes(exact_sums(rank.ranks, kCount, round)));
    NCCL(ncclCommDestroy(comm));
  }
  const Resources after = Resources::now();
  REQUIRE(after.free_memory == before.free_memory);
  REQUIRE(after.ipc_opens == before.ipc_opens);
  REQUIRE(after.allocations == before.allocations);
  REQUIRE(after.files == before.files);
  REQUIRE(after.threads <= before.threads);
}

TEST_CASE("case_29_thousand_communicators") {
  JobOptions all;
  all.environment = counted();
  all.environment["SHUNT_CAP"] = "4096";
  all.environment["SHUNT_LOG"] = "warning";
  all.limit_seconds = 100;
  Job job("thousand", all);
  REQUIRE(job.trouble(100) == "");
  require_quiet(job);
  CHECK(total(job.output(), "shunted") == 2 * 1000);
  CHECK(total(job.output(), "communicators") == 2 * 1000);
}

// Several at once, made in one order and destroyed in another on each rank; splits among them.
TEST_CASE("job: any order", "[.]") {
  const Rank rank;
  const Stream stream;
  int slot = 0;
  for (int turn = 0; turn < 12; ++turn) {
    std::vector<ncclComm_t> comms;
    for (int i = 0; i < 4; ++i) comms.push_back(rank.connect(slot++));
    ncclComm_t part = nullptr;
    NCCL(ncclCommSplit(comms[0], rank.rank % 2, rank.rank, &part, nullptr));
    comms.push_back(part);
    for (size_t i = 0; i < comms.size(); ++i) {
      const size_t count = 100 + 100 * i;
      if (comms[i] != part) ENSURE(all_reduce_once(rank, comms[i], stream, count, turn + 7) == 0);
    }
    float value = 1;
    Memory one(4);
    one.put(as_bytes({value}));
    NCCL(ncclAllReduce(one.at(), one.at(), 1, ncclFloat32, ncclSum, part, stream));
    stream.wait();
    ENSURE(one.get(4) == as_bytes({2}));
    // Rank r begins with another one, and leaves some to the next turn's end: never.
    std::rotate(comms.begin(), comms.begin() + (rank.rank + turn) % 5, comms.end());
    if (rank.rank % 2 == 1) std::reverse(comms.begin(), comms.end());
    for (const ncclComm_t comm : comms) NCCL(ncclCommDestroy(comm));
  }
}

TEST_CASE("case_29_destroyed_in_any_order") {
  JobOptions all;
  all.ranks = 4;
  all.environment["SHUNT_CAP"] = "2048";
  Job job("any order", all);
  REQUIRE(job.trouble(60) == "");
  require_quiet(job);
  CHECK(total(job.output(), "forwarded") == 0);
}

// Two seconds of skew, a communicator that was never used, one that is never destroyed.
TEST_CASE("job: skew", "[.]") {
  const Rank rank;
  const Stream stream;
  const ncclComm_t used = rank.connect(0), unused = rank.connect(1);
  ENSURE(all_reduce_once(rank, used, stream, 1000, 1) == 0);
  if (rank.rank == 1) sleep_s(2);
  NCCL(ncclCommDestroy(used));
  NCCL(ncclCommDestroy(unused));
  const ncclComm_t again = rank.connect(2), kept = rank.connect(3);
  ENSURE(all_reduce_once(rank, again, stream, 2000, 2) == 0);
  ENSURE(all_reduce_once(rank, kept, stream, 2000, 3) == 0);
  if (rank.rank == 0) sleep_s(0.5);
  NCCL(ncclCommFinalize(again));
  NCCL(ncclCommDestroy(again));
  // `kept` is left to the end of the process, in the middle of an all-reduce's stream and a graph.
  Memory memory(4096);
  NCCL(ncclAllReduce(memory.at(), memory.at(), 64, ncclFloat32, ncclSum, kept, stream));
}

TEST_CASE("case_29_skew_no_use_no_destroy") {
  JobOptions all;
  Job job("skew", all);
  REQUIRE(job.trouble(60) == "");
  require_quiet(job);
  CHECK(total(job.output(), "shunted") == 2 * 4);
}

// A wait that has ended is over: the peer may be gone, and SHUNT_TIMEOUT does not count what came
// after.
TEST_CASE("job: finished peer", "[.]") {
  const Rank rank;
  const Stream stream;
  const ncclComm_t comm = rank.connect();
  ENSURE(all_reduce_once(rank, comm, stream, 1000, 1) == 0);
  for (uint32_t turn = 0; turn < 3; ++turn) {
    if (rank.rank == 1) sleep_s(0.12);  // rank 0 waits long enough to say so
    ENSURE(all_reduce_once(rank, comm, stream, 1000, 2 + turn) == 0);
    sleep_s(turn == 0 ? 0.8 : 0);  // idle for longer than SHUNT_TIMEOUT
  }
  // The last one is NCCL's.
  if (std::getenv("LIFE_LAST_FORWARDED") != nullptr) ENSURE(all_reduce_once(rank, comm, stream, 60000, 9) == 0);
  if (rank.rank == 1) _exit(0);
  for (int look = 0; look < 15; ++look) {
    sleep_s(0.1);
    ncclResult_t error = ncclInternalError;
    NCCL(ncclCommGetAsyncError(comm, &error));
    REQUIRE(error == ncclSuccess);
  }
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_29_a_peer_that_has_finished_may_be_gone") {
  for (const char* forwarded : {"(unset)", "1"}) {
    for (const char* timeout : {"0.5", "(unset)"}) {
      JobOptions all;
      all.environment["SHUNT_TIMEOUT"] = timeout;
      all.environment["LIFE_LAST_FORWARDED"] = forwarded;
      Job job("finished peer", all);
      INFO(timeout << " " << forwarded);
      REQUIRE(job.trouble(60) == "");
      require_quiet(job);
    }
  }
}

// NCCL makes a new communicator where an old one was: other ranks, other size, other GPU.
TEST_CASE("job: address", "[.]") {
  const Rank rank(-2);
  std::set<ncclComm_t> seen;
  int reused = 0;
  for (int life = 0; life < 40; ++life) {
    const bool wide = life % 2 == 1;
    const int ranks = wide ? 3 : 2;
    if (rank.rank < ranks) {
      CUdevice device = 0;
      CUcontext context = nullptr;
      CU(cuInit(0));
      CU(cuDeviceGet(&device, rank.rank + (wide ? 3 : 0)));
      CU(cuDevicePrimaryCtxRetain(&context, device));
      CU(cuCtxSetCurrent(context));
      const Stream stream;
      const ncclComm_t comm = rank.connect(life, ranks);
      reused += seen.insert(comm).second ? 0 : 1;
      // Another number of ranks has another cap: the decision must be that of the new one.
      for (const size_t count : {size_t{100}, size_t{20000}, size_t{30000}}) {
        ENSURE(all_reduce_once(rank, comm, stream, count, static_cast<uint32_t>(life)) == 0);
      }
      if (life % 5 == 4) {
        NCCL(ncclCommAbort(comm));
      } else {
        NCCL(ncclCommDestroy(comm));
      }
    }
    rank.barrier();
  }
  if (rank.rank < 2) REQUIRE(reused > 5);
}

TEST_CASE("case_30_address_is_reused") {
  JobOptions all;
  all.ranks = 3;
  all.environment["SHUNT_LOG"] = "warning";
  Job job("address", all);
  REQUIRE(job.trouble(60) == "");
  require_quiet(job);
  // 2 ranks: 128 KiB, all three are shunted; 3 ranks: 64 KiB, one is.
  CHECK(total(job.output(), "shunted") == 20 * 2 * 3 + 20 * 3 * 1);
  CHECK(total(job.output(), "forwarded") == 20 * 3 * 2);
}
