// Case 27, the ranks: calls in some way until one does not end by data.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "test/cases/client.h"
#include "test/cases/exchange.h"
#include "test/cases/life_kill.h"
#include "test/cases/life_lines.h"
#include "test/catch.h"

using namespace cases;
using namespace cases::life;

namespace {

// How a survivor reacts to ncclRemoteError: like a framework, or not at all until the trap.
enum class Reaction { kAbort, kWait };

// How a call is made: alone, from a graph, as three in a group, above the cap, or above it in turn
// with others.
enum class Way { kEager, kGraph, kGroup, kForwarded, kMixed };

// Seconds in which a call that cannot succeed must return.
double patience() {
  return std::getenv("LIFE_PATIENCE") != nullptr ? number_of("LIFE_PATIENCE") : 8;
}

Way way() {
  const char* name = std::getenv("LIFE_WAY");
  if (name == nullptr) return Way::kEager;
  for (const auto& [known, way] :
       {std::pair("graph", Way::kGraph), std::pair("group", Way::kGroup),
        std::pair("forwarded", Way::kForwarded), std::pair("mixed", Way::kMixed)}) {
    if (std::strcmp(name, known) == 0) return way;
  }
  throw std::runtime_error(std::string("no way ") + name);
}

// Calls until one does not end by data. Every sum that a stream goes on with is checked.
class Survivor {
 public:
  Survivor(const Rank& rank, ncclComm_t comm, Way way)
      : rank_(rank), comm_(comm), way_(way), send_(kMost), recv_(kMost), host_(kMost) {
    count_ = way == Way::kForwarded || way == Way::kMixed ? kMost / 4 : kCount;
    if (way == Way::kGraph)
      graph_ = std::make_unique<Graph>(stream_, [this] { NCCL(all_reduce()); });
  }

  // Returns what ended it.
  std::string run(Reaction reaction, uint32_t calls) {
    for (uint32_t call = 1; call <= calls; ++call) {
      if (way_ == Way::kMixed) count_ = call % 2 == 0 ? kMost / 4 : kCount;
      send_.put(as_bytes(exact_inputs(rank_.rank, count_, call)));
      recv_.fill(0x7b);
      std::memset(host_.words(), 0, kMost);
      if (graph_ != nullptr) graph_->launch(stream_);
      const ncclResult_t result = graph_ != nullptr ? ncclSuccess : all_reduce();
      if (result == ncclRemoteError) return leave();
      NCCL(result);
      CU(cuMemcpyDtoHAsync(host_.words(), recv_.address(), count_ * 4, stream_));
      const std::string end = wait(reaction);
      if (!end.empty()) return end;
      ENSURE(std::memcmp(host_.words(), as_bytes(exact_sums(rank_.ranks, count_, call)).data(),
                         count_ * 4) == 0);
    }
    return "all calls done";
  }

 private:
  static constexpr size_t kCount = 1500, kMost = 12000;  // elements, bytes; the cap lies between

  ncclResult_t all_reduce() const {
    const size_t parts = way_ == Way::kGroup ? 3 : 1;
    if (parts > 1) NCCL(ncclGroupStart());
    ncclResult_t result = ncclSuccess;
    for (size_t part = 0; part < parts && result == ncclSuccess; ++part) {
      const size_t count = count_ / parts, from = part * count * 4;
      result = ncclAllReduce(send_.at(from), recv_.at(from), count, ncclFloat32, ncclSum, comm_,
                             stream_);
    }
    if (parts == 1) return result;
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
  }
  // Whether the copy behind the sum has run.
  bool fetched() const {
    const auto* words = host_.words();
    return std::any_of(words, words + count_, [](uint32_t word) { return word != 0; });
  }

  // Empty: the call ended by data.
  std::string wait(Reaction reaction) {
    for (int turn = 0; turn < 6000; ++turn) {
      const CUresult end = stream_.end(0.005);
      if (end == CUDA_SUCCESS) return "";
      if (fetched()) {  // then the call has ended since, by data
        ENSURE(end == CUDA_ERROR_NOT_READY);
        ENSURE(stream_.end(5) == CUDA_SUCCESS);
        return "";
      }
      if (end != CUDA_ERROR_NOT_READY) return "cuda error";
      ncclResult_t error = ncclSuccess;
      NCCL(ncclCommGetAsyncError(comm_, &error));
      ENSURE(error == ncclSuccess || error == ncclRemoteError);
      if (error == ncclRemoteError && reaction == Reaction::kAbort) return leave();
    }
    throw std::runtime_error("the wait never ended");
  }
  std::string leave() const {
    NCCL(ncclCommAbort(comm_));
    ENSURE(stream_.end(5) == CUDA_SUCCESS);
    return "remote error";
  }

  const Rank& rank_;
  const ncclComm_t comm_;
  const Way way_;
  size_t count_;
  Stream stream_;
  Memory send_, recv_;
  Pinned host_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace

namespace {

// After the calls of all: a rank whose peer has died before its last call need not finish it.
void destroy(const Rank& rank, ncclComm_t comm) {
  rank.barrier();
  if (rank.rank == kVictim) {
    rank.set(kDestroying, static_cast<uint32_t>(lines(Line::kAny)));
    if (std::getenv("LIFE_KILL_IN_DESTROY") != nullptr) {
      const unsigned long line =
          lines(Line::kAny) + static_cast<unsigned>(number_of("LIFE_KILL_IN_DESTROY"));
      setenv("LIFE_KILL_AT_LINE", std::to_string(line).c_str(), 1);
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const ncclResult_t result = ncclCommDestroy(comm);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (rank.rank == kVictim) rank.set(kDestroyed, static_cast<uint32_t>(lines(Line::kAny)));
  std::printf("destroyed %d after %.2f s\n", result, took.count());
  std::fflush(stdout);
  REQUIRE((result == ncclSuccess || result == ncclRemoteError));
  REQUIRE(took.count() < patience());
}

}  // namespace

TEST_CASE("job: killed", "[.]") {
  const Rank rank;
  const ncclUniqueId id = rank.unique_id(0);
  rank.barrier();
  if (rank.rank == kVictim) rank.set(kBegan, static_cast<uint32_t>(lines(Line::kAny)));
  ncclComm_t comm = nullptr;
  const auto start = std::chrono::steady_clock::now();
  const ncclResult_t made = ncclCommInitRank(&comm, rank.ranks, id, rank.rank);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("made %d after %.2f s\n", made, took.count());
  std::fflush(stdout);
  if (made != ncclSuccess) {
    REQUIRE(made == ncclRemoteError);
    REQUIRE(took.count() < patience());
    if (comm != nullptr) NCCL(ncclCommAbort(comm));
    _exit(0);  // as one that gives up: without waiting for anything
  }
  rank.set(kReady + rank.rank);
  if (rank.rank == kVictim) {
    rank.set(kPrepared, static_cast<uint32_t>(lines(Line::kAny)));
    for (unsigned i = 0; i < lines(Line::kOperation); ++i) {
      rank.set(kFirstOperation + static_cast<int>(i), static_cast<uint32_t>(line_of_operation(i)));
    }
  }
  const bool wait = std::getenv("LIFE_WAIT") != nullptr;
  const char* calls = std::getenv("LIFE_TEN_CALLS");
  Survivor survivor(rank, comm, way());
  const std::string end =
      survivor.run(wait ? Reaction::kWait : Reaction::kAbort, calls != nullptr ? 10 : 1000000);
  std::printf("ended by %s\n", end.c_str());
  std::fflush(stdout);
  if (calls == nullptr) REQUIRE(end == (wait ? "cuda error" : "remote error"));
  if (std::getenv("LIFE_DESTROY") != nullptr) destroy(rank, comm);
  _exit(0);
}
