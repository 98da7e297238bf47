// An NCCL that is newer than the nccl.h of the build: its operations and makers, looked up by name.
#include <dlfcn.h>

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
