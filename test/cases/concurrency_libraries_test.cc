// Cases 10 and 14, as far as test/preload does not show them: calls of
// a forked child are shunted, and calls to the oldest NCCL.
// Case 11: two NCCL libraries in one process, each with a communicator of its own. The program is
// linked with the first and looks the second up, as a framework beside PyTorch does.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/cases/said.h"
#include "test/catch.h"

using namespace cases;

namespace {

struct Library {
  void* handle = dlopen(CASES_SECOND_NCCL, RTLD_NOW | RTLD_LOCAL);
  template <typename F>
  F* find(const char* name) const {
    void* found = handle == nullptr ? nullptr : dlsym(handle, name);
    ENSURE(found != nullptr);
    return reinterpret_cast<F*>(found);
  }
};

}  // namespace

TEST_CASE("job: two libraries", "[.]") {
  Rank rank;
  const Library library;
  const auto get_id = library.find<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
  const auto init = library.find<decltype(ncclCommInitRank)>("ncclCommInitRank");
  const auto all_reduce = library.find<decltype(ncclAllReduce)>("ncclAllReduce");
  const auto group_start = library.find<decltype(ncclGroupStart)>("ncclGroupStart");
  const auto group_end = library.find<decltype(ncclGroupEnd)>("ncclGroupEnd");
  const auto destroy = library.find<decltype(ncclCommDestroy)>("ncclCommDestroy");

  const ncclComm_t first = rank.connect(0);
  Shared::Id& id = rank.shared.ids[1];
  if (rank.rank == 0) {
    NCCL(get_id(&id.id));
    id.ready.store(1);
  }
  wait_until([&] { return id.ready.load() != 0; }, "the id of the second library");
  ncclComm_t second = nullptr;
  NCCL(init(&second, rank.ranks, id.id, rank.rank));

  const Stream streams[2];
  // Sizes differ, so that the traces tell the libraries apart.
  Exchange small[2] = {Exchange(4096), Exchange(8192)},
           large[2] = {Exchange(262144), Exchange(524288)};
  uint64_t seed = 0;
  const auto fill = [&](Exchange(&pair)[2]) {
    for (size_t i = 0; i < 2; ++i) pair[i].fill(++seed, rank.rank, streams[i]);
  };
  const auto check = [&](Exchange(&pair)[2]) {
    for (size_t i = 0; i < 2; ++i) pair[i].fetch(streams[i]);
    for (size_t i = 0; i < 2; ++i) {
      streams[i].wait();
      pair[i].check(rank.ranks);
    }
  };
  for (int round = 0; round < 40; ++round) {
    for (auto* pair : {&small, &large}) {
      fill(*pair);  // in turn
      (*pair)[0].call(first, streams[0]);
      (*pair)[1].call(second, streams[1], all_reduce);
      check(*pair);
      fill(*pair);  // in a group of each, one inside the other
      NCCL(ncclGroupStart());
      (*pair)[0].call(first, streams[0]);
      NCCL(group_start());
      (*pair)[1].call(second, streams[1], all_reduce);
      NCCL(group_end());
      NCCL(ncclGroupEnd());
      check(*pair);
      fill(*pair);  // in groups that overlap: the end of the first runs what is the first's
      NCCL(ncclGroupStart());
      (*pair)[0].call(first, streams[0]);
      NCCL(group_start());
      (*pair)[1].call(second, streams[1], all_reduce);
      NCCL(ncclGroupEnd());
      (*pair)[0].fetch(streams[0]);
      streams[0].wait();
      (*pair)[0].check(rank.ranks);
      NCCL(group_end());
      check(*pair);
    }
  }
  std::puts("all right");
  rank.barrier();
  NCCL(destroy(second));
  NCCL(ncclCommDestroy(first));
}

TEST_CASE("case_11_two_nccl_libraries") {
  const TemporaryFile trace("case-11-trace");
  Job job("two libraries", {.environment = {{"EMU_NCCL_TRACE", trace.path()}}});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(lines_of(job.output(), "info", {": on,"}).size() == 2);
  CHECK(total(job.output(), "shunted") == 2 * 40 * 6);
  CHECK(total(job.output(), "forwarded") == 2 * 40 * 6);
  size_t of_first = 0, of_second = 0, wrong = 0;
  for (const std::string& line : lines_with(read_file(trace.path()), "fn=ncclAllReduce ")) {
    const bool second = line.rfind("lib=second ", 0) == 0;
    of_first += count_of(line, " bytes=262144 ");
    of_second += count_of(line, " bytes=524288 ");
    wrong += count_of(line, second ? " bytes=262144 " : " bytes=524288 ");
    wrong += count_of(line, " bytes=4096 type=float") + count_of(line, " bytes=8192 type=float");
  }
  CHECK(of_first == 2 * 40 * 3);
  CHECK(of_second == 2 * 40 * 3);
  CHECK(wrong == 0);
}

// Nothing here needs more than 2.18 has: no fp8, shrink, scalable init or revoke.
TEST_CASE("job: plain", "[.]") {
  Rank rank;
  const ncclComm_t world = rank.connect();
  ncclComm_t pair = nullptr;
  NCCL(ncclCommSplit(world, rank.rank / 2, rank.rank, &pair, nullptr));
  const Stream stream;
  run_sizes(rank, world, stream, 1, {8, 4096, 65536, 262144});
  Exchange narrow(4096);
  narrow.run(2, rank.rank % 2, 2, pair, stream);
  std::puts("all right");
  rank.barrier();
  NCCL(ncclCommDestroy(pair));
  NCCL(ncclCommDestroy(world));
}

TEST_CASE("case_14_oldest_nccl_shunts") {
  const TemporaryFile trace("case-14-trace");
  Job job("plain", {.ranks = 4,
                    .environment = {{"EMU_NCCL_TRACE", trace.path()},
                                    {"LD_LIBRARY_PATH", CASES_OLDEST_NCCL ":" CASES_EMULATOR}}});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 4);
  CHECK(total(job.output(), "shunted") == 4 * 4);
  CHECK(total(job.output(), "forwarded") == 4);
  CHECK(lines_with(read_file(trace.path()), "lib=2.18 ").size() > 4);
  CHECK(lines_with(read_file(trace.path()), "lib=2.28 ").empty());
}

// A parent that never calls NCCL forks; the child does. Both end in the usual way.
TEST_CASE("job: forking", "[.]") {
  Rank rank(-2);
  std::fflush(stdout);
  const pid_t child = fork();
  ENSURE(child >= 0);
  if (child == 0) {
    alarm(60);
    try {
      rank.use_device(rank.rank);
      const ncclComm_t comm = rank.connect();
      const Stream stream;
      run_sizes(rank, comm, stream, 10, {8, 4096, 262144});
      std::puts("all right");
      rank.barrier();
      NCCL(ncclCommDestroy(comm));
    } catch (const std::exception& error) {
      std::printf("%s\n", error.what());
      std::fflush(stdout);
      _exit(1);
    }
    std::exit(0);
  }
  int status = -1;
  ENSURE(waitpid(child, &status, 0) == child);
  ENSURE(status == 0);
}

TEST_CASE("case_10_forked_child_shunts") {
  Job job("forking");
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 2);
  CHECK(total(job.output(), "shunted") == 2 * 2);
  CHECK(total(job.output(), "forwarded") == 2);
  CHECK(lines_of(job.output(), "info", {": on,"}).size() == 1);
}
