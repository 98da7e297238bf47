// An NCCL that is newer than the nccl.h of the build: its operations and makers, looked up by name.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "shim/newer_nccl.h"
#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

const Environment kNewest = {{"LD_LIBRARY_PATH", CASES_NEWEST_NCCL ":" CASES_EMULATOR}};

template <typename F>
F* looked_up(const char* name) {
  void* found = dlsym(dlopen("libnccl.so.2", RTLD_NOW), name);
  ENSURE(found != nullptr);
  return reinterpret_cast<F*>(found);
}

}  // namespace

// In place on one buffer from both streams in turn, with no order but NCCL's: short calls are shunted, long
// ones are of a function that nccl.h need not have. Each doubles what it covers.
TEST_CASE("job: newest chain", "[.]") {
  Rank rank;
  const ncclComm_t comm = rank.connect();
  auto* const long_call = looked_up<decltype(ncclAllReduceConfig)>("ncclAllReduceConfig");
  const Stream streams[2];
  constexpr size_t kWords = 65536;
  const Memory buffer(kWords * 4);
  const Pinned host(kWords * 4);
  Random random(14);  // alike on all ranks
  for (uint64_t round = 0; round < 40; ++round) {
    std::vector<uint32_t> want(kWords);
    for (size_t i = 0; i < kWords; ++i) {
      host.words()[i] = word_of(round, rank.rank, i);
      want[i] = word_of(round, 0, i) + word_of(round, 1, i);
    }
    CU(cuMemcpyHtoDAsync(buffer.address(), host.words(), kWords * 4, streams[0]));
    streams[0].wait();
    for (int call = 0; call < 12; ++call) {
      const CUstream stream = streams[random.below(2)];
      const bool is_long = call == 0 || random.below(4) == 0;
      const size_t words = is_long ? kWords : random.below(4096) + 1;
      if (is_long) {
        NCCL(long_call(buffer.at(), buffer.at(), words, ncclUint32, ncclSum, comm, stream, nullptr));
      } else {
        NCCL(ncclAllReduce(buffer.at(), buffer.at(), words, ncclUint32, ncclSum, comm, stream));
      }
      for (size_t i = 0; call > 0 && i < words; ++i) want[i] *= 2;
    }
    for (const Stream& stream : streams) stream.wait();
    CU(cuMemcpyDtoHAsync(host.words(), buffer.address(), kWords * 4, streams[0]));
    streams[0].wait();
    ENSURE(std::memcmp(host.words(), want.data(), kWords * 4) == 0);
  }
  done(rank, {comm});
}

TEST_CASE("case_14_newest_nccl_keeps_the_order") {
  Environment environment = kNewest;
  environment["EMU_KERNEL_DELAY_US"] = "*:300";
  Job job("newest chain", {.environment = environment});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(total(job.output(), "shunted") > 2 * 200);
  CHECK(total(job.output(), "forwarded") > 2 * 40);
  CHECK(total(job.output(), "shunted") + total(job.output(), "forwarded") == 2 * 40 * 12);
}

// Ranks 0 and 1 have a communicator, which grows by rank 2. What comes of it, and what is split from that, is
// forwarded and right; a communicator made later in the usual way, perhaps at its address, shunts.
TEST_CASE("job: grown", "[.]") {
  const Rank rank;
  const Stream stream;
  ncclComm_t parent = nullptr, grown = nullptr, child = nullptr;
  if (rank.rank < 2) {
    parent = rank.connect(0, 2);
    ENSURE(all_reduce_once(rank, parent, stream, 1000, 1) == 0);
  }
  const ncclUniqueId id = rank.unique_id(1);
  const bool has_id = rank.rank != 1;
  NCCL(looked_up<decltype(ncclCommGrow)>("ncclCommGrow")(parent, 3, has_id ? &id : nullptr,
                                                         rank.rank < 2 ? -1 : 2, &grown, nullptr));
  ENSURE(all_reduce_once(rank, grown, stream, 1000, 2) == 0);
  NCCL(ncclCommSplit(grown, 0, rank.rank, &child, nullptr));
  ENSURE(all_reduce_once(rank, child, stream, 1000, 3) == 0);
  for (const ncclComm_t comm : {parent, grown, child}) {
    rank.barrier();
    if (comm != nullptr) NCCL(ncclCommDestroy(comm));
  }
  const ncclComm_t usual = rank.connect(2);
  ENSURE(all_reduce_once(rank, usual, stream, 1000, 4) == 0);
  done(rank, {usual});
}

TEST_CASE("case_14_grown_communicator_is_forwarded") {
  Job job("grown", {.ranks = 3, .environment = kNewest});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(total(job.output(), "shunted") == 2 + 3);
  CHECK(total(job.output(), "forwarded") == 3 + 3);
  CHECK(lines_of(job.output(), "info", {"ncclCommGrow", "off"}).size() == 3);
  CHECK(lines_of(job.output(), "warning").empty());
  CHECK(lines_of(job.output(), "error").empty());
}

// Memory of NCCL's is gone meanwhile. Calls of both kinds before and after; a shunted one needs nothing of NCCL's.
TEST_CASE("job: suspended", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  auto* const suspend = looked_up<decltype(ncclCommSuspend)>("ncclCommSuspend");
  auto* const resume = looked_up<decltype(ncclCommResume)>("ncclCommResume");
  const Stream streams[2];
  constexpr size_t kShort = 1000, kLong = 65536;
  const Memory memory(kLong * 4);
  const Pinned host(kLong * 4);
  for (uint32_t round = 0; round < 6; ++round) {
    const bool grouped = round % 2 == 1;
    // The calls are still under way when the communicator is suspended, on a rank that comes late to them.
    if (static_cast<int>(round % 2) == rank.rank) pause_us(20000);
    memory.put(as_bytes(exact_inputs(rank.rank, kLong, round)));
    NCCL(ncclAllReduce(memory.at(), memory.at(), kLong, ncclFloat32, ncclSum, comm, streams[0]));
    CU(cuMemcpyDtoHAsync(host.words() + kShort, memory.address() + kShort * 4, (kLong - kShort) * 4, streams[0]));
    NCCL(ncclAllReduce(memory.at(), memory.at(), kShort, ncclFloat32, ncclSum, comm, streams[1]));
    CU(cuMemcpyDtoHAsync(host.words(), memory.address(), kShort * 4, streams[1]));
    if (grouped) NCCL(ncclGroupStart());
    NCCL(suspend(comm, NCCL_SUSPEND_MEM));
    if (grouped) NCCL(ncclGroupEnd());
    std::vector<float> want = exact_sums(rank.ranks, kLong, round);
    for (size_t i = 0; i < kShort; ++i) want[i] *= static_cast<float>(rank.ranks);
    ENSURE(std::memcmp(host.words(), want.data(), kLong * 4) == 0);  // nobody else has waited
    ENSURE(suspend(comm, NCCL_SUSPEND_MEM) == ncclInvalidUsage);
    ENSURE(all_reduce_once(rank, comm, streams[0], kShort, round) == 0);
    NCCL(resume(comm));
    ENSURE(resume(comm) == ncclInvalidUsage);
    for (const size_t count : {kShort, kLong}) ENSURE(all_reduce_once(rank, comm, streams[0], count, round) == 0);
  }
  done(rank, {comm});
}

TEST_CASE("case_14_suspended_and_resumed") {
  Environment environment = kNewest;
  environment["EMU_KERNEL_DELAY_US"] = "*:2000";
  Job job("suspended", {.environment = environment});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(total(job.output(), "shunted") == 2 * 6 * 3);
  CHECK(total(job.output(), "forwarded") == 2 * 6 * 2);
  CHECK(lines_of(job.output(), "warning").empty());
  CHECK(lines_of(job.output(), "error").empty());
  CHECK(job.output().find("emulated nccl") == std::string::npos);
}

// A communicator with a dead peer is not waited for.
TEST_CASE("job: suspended alone", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  auto* const suspend = looked_up<decltype(ncclCommSuspend)>("ncclCommSuspend");
  auto* const resume = looked_up<decltype(ncclCommResume)>("ncclCommResume");
  const Stream stream;
  if (rank.rank == 1) std::_Exit(0);
  const Memory memory(1 << 20);
  NCCL(ncclAllReduce(memory.at(), memory.at(), 1 << 18, ncclFloat32, ncclSum, comm, stream));
  ncclResult_t error = ncclSuccess;
  for (int look = 0; look < 500 && error == ncclSuccess; ++look) {
    pause_us(10000);
    NCCL(ncclCommGetAsyncError(comm, &error));
  }
  std::printf("%d %d %d\n", error, suspend(comm, NCCL_SUSPEND_MEM), resume(comm));
  NCCL(ncclGroupStart());
  std::printf("in a group %d\n", suspend(comm, NCCL_SUSPEND_MEM));
  std::printf("its end %d\n", ncclGroupEnd());
  NCCL(ncclCommAbort(comm));
}

TEST_CASE("case_14_suspended_with_a_dead_peer") {
  Job job("suspended alone", {.environment = kNewest, .limit_seconds = 20});
  CHECK(job.trouble(20) == "");
  INFO(job.output());
  CHECK(count_of(job.output(0), "6 6 6\n") == 1);  // ncclRemoteError
  CHECK(count_of(job.output(0), "in a group 6\n") == 1);
  CHECK(count_of(job.output(0), "its end 6\n") == 1);
}
