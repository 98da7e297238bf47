// Cases 28 and 43: an abort ends the wait, and afterwards nothing of that communicator stores
// anything.
#include <cstdlib>
#include <cstring>

#include "test/cases/client.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kCount = 700, kBytes = kCount * 4;
constexpr unsigned char kPoison = 0x7b;
enum Flag { kAborted, kSurvivorsDone };

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One rank's buffers, stream and graph on the communicator that will be aborted.
struct Station {
  explicit Station(const Rank& rank)
      : comm(rank.connect()), send(kBytes), recv(kBytes), graph(stream, [this] { NCCL(call()); }) {
    send.put(as_bytes(exact_inputs(rank.rank, kCount, 9)));
  }
  ncclResult_t call(size_t first = 0, size_t count = kCount) const {
    return ncclAllReduce(send.at(first * 4), recv.at(first * 4), count, ncclFloat32, ncclSum, comm, stream);
  }
  // Enqueues one all-reduce, or two in a group.
  void go(const std::string& mode) const {
    recv.fill(kPoison);
    if (mode == "graph") {
      graph.launch(stream);
    } else if (mode == "group") {
      NCCL(ncclGroupStart());
      NCCL(call(0, kCount / 2));
      NCCL(call(kCount / 2, kCount / 2));
      NCCL(ncclGroupEnd());
    } else {
      NCCL(call());
    }
  }
  bool poisoned() const { return recv.get(kBytes) == Bytes(kBytes, kPoison); }
  void wait_in_vain(double seconds) const {
    REQUIRE(stream.end(seconds) == CUDA_ERROR_NOT_READY);
    REQUIRE(poisoned());
  }

  ncclComm_t comm;
  Stream stream;
  Memory send, recv;
  Graph graph;
};

// What ends the communicator. Returns the child of a shrink.
ncclComm_t end_it(const std::string& how, ncclComm_t comm) {
  ncclComm_t child = nullptr;
  if (how == "revoke") {
    NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  } else if (how == "shrink") {
    int excluded[] = {2};
    NCCL(ncclCommShrink(comm, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
  } else {
    NCCL(ncclCommAbort(comm));
  }
  return child;
}

// By a thread of its own, as a watchdog does; must take less than five seconds.
ncclComm_t end_it_from_a_thread(const Rank& rank, const std::string& how, ncclComm_t comm) {
  ncclComm_t child = nullptr;
  std::exception_ptr failed;
  const auto start = Clock::now();
  std::thread thread([&] {
    try {
      CU(cuCtxSetCurrent(rank.context));
      child = end_it(how, comm);
    } catch (...) {
      failed = std::current_exception();
    }
  });
  thread.join();
  if (failed) std::rethrow_exception(failed);
  REQUIRE(since(start) < 5);
  return child;
}

// Replays, and calls where the handle still lives, find the stop word before their first store.
void nothing_is_stored(const Station& station, bool handle_lives) {
  for (int i = 0; i < 3; ++i) {
    station.recv.fill(kPoison);
    station.graph.launch(station.stream);
    REQUIRE(station.stream.end(5) == CUDA_SUCCESS);
    REQUIRE(station.poisoned());
  }
  if (!handle_lives) return;
  REQUIRE(station.call() != ncclSuccess);
  REQUIRE(station.stream.end(5) == CUDA_SUCCESS);
  REQUIRE(station.poisoned());
}

}  // namespace

// Rank 0 waits alone and is aborted. Its peers then find the data of that one call, which is whole,
// and must find none of any later one.
TEST_CASE("job: abort", "[.]") {
  const std::string mode = std::getenv("LIFE_MODE"), how = std::getenv("LIFE_HOW");
  const Rank rank;
  const Station station(rank);
  const Bytes sums = as_bytes(exact_sums(rank.ranks, kCount, 9));
  for (const char* warm_up : {"eager", "graph"}) {
    station.go(warm_up);
    station.stream.wait();
    REQUIRE(station.recv.get(kBytes) == sums);
  }
  rank.barrier();
  const bool handle_lives = how == "revoke";
  if (rank.rank == 0) {
    station.go(mode);
    station.wait_in_vain(0.3);
    // A shrink is a collective: the other ranks come along below.
    if (how == "shrink") rank.set(kAborted);
    const ncclComm_t child = end_it_from_a_thread(rank, how, station.comm);
    REQUIRE(station.stream.end(5) == CUDA_SUCCESS);
    REQUIRE(station.poisoned());
    if (child != nullptr) {
      const Stream stream;
      REQUIRE(all_reduce_once(rank, child, stream, kCount, 21) == 0);
      NCCL(ncclCommDestroy(child));
    }
    nothing_is_stored(station, handle_lives);
    rank.set(kAborted);
    if (how != "abort") NCCL(ncclCommAbort(station.comm));
  } else {
    rank.wait_for(kAborted);
    if (how == "shrink") {
      if (rank.rank == 1) {
        const ncclComm_t child = end_it_from_a_thread(rank, how, station.comm);
        const Stream stream;
        REQUIRE(all_reduce_once(rank, child, stream, kCount, 21) == 0);
        NCCL(ncclCommDestroy(child));
      }
    } else {
      station.go(mode);
      station.stream.wait(10);
      REQUIRE(station.recv.get(kBytes) == sums);
      station.go("eager");
      station.wait_in_vain(0.5);
      end_it_from_a_thread(rank, "abort", station.comm);
      REQUIRE(station.stream.end(5) == CUDA_SUCCESS);
      REQUIRE(station.poisoned());
      nothing_is_stored(station, false);
    }
    if (how == "shrink") NCCL(ncclCommAbort(station.comm));
  }
  rank.barrier();
  // New communicators of the same GPUs are right, while the old graphs still exist.
  const Stream stream;
  for (int slot = 1; slot < 3; ++slot) {
    const ncclComm_t comm = rank.connect(slot);
    for (uint32_t round = 0; round < 5; ++round) {
      REQUIRE(all_reduce_once(rank, comm, stream, kCount * (round + 1), round) == 0);
    }
    station.graph.launch(station.stream);  // the aborted one: does nothing, to nobody
    REQUIRE(station.stream.end(5) == CUDA_SUCCESS);
    REQUIRE(all_reduce_once(rank, comm, stream, kCount, 33) == 0);
    NCCL(ncclCommDestroy(comm));
  }
}

namespace {

void run_abort(const char* mode, const char* how) {
  JobOptions all;
  all.ranks = 3;
  all.environment = {{"LIFE_MODE", mode}, {"LIFE_HOW", how}};
  Job job("abort", all);
  INFO(mode << ", " << how);
  REQUIRE(job.trouble(60) == "");
  const std::string output = job.output();
  INFO(output);
  CHECK(output.find("misuse") == std::string::npos);
  CHECK(lines_of(output, "error").empty());  // an abort is the user's will
  CHECK(total(output, "forwarded") == 0);
}

}  // namespace

TEST_CASE("case_28_abort_from_a_second_thread") {
  for (const char* mode : {"eager", "graph", "group"}) run_abort(mode, "abort");
}

TEST_CASE("case_43_nothing_is_stored_after_an_abort") {
  run_abort("eager", "revoke");
  run_abort("graph", "revoke");
  run_abort("eager", "shrink");
}
