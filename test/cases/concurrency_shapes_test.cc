// Case 26: one thread or several. (One process for each GPU is what all other cases are.)
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

constexpr int kGpus = 3;

// A GPU of this process and what belongs to it.
struct Place {
  explicit Place(int device) {
    CUdevice handle = 0;
    CU(cuDeviceGet(&handle, device));
    CU(cuDevicePrimaryCtxRetain(&context, handle));
    use();
    stream = std::make_unique<Stream>();
    for (const size_t bytes : {size_t{4096}, size_t{64}, size_t{262144}}) {
      exchanges.push_back(std::make_unique<Exchange>(bytes));
    }
  }
  void use() const { CU(cuCtxSetCurrent(context)); }

  CUcontext context = nullptr;
  ncclComm_t comm = nullptr;
  std::unique_ptr<Stream> stream;
  std::vector<std::unique_ptr<Exchange>> exchanges;  // small, small, above the cap
};

// The exchanges `which` of all places in one group of one thread.
void grouped_round(std::vector<std::unique_ptr<Place>>& places, const std::vector<size_t>& which,
                   uint64_t round) {
  const int ranks = static_cast<int>(places.size());
  for (int rank = 0; rank < ranks; ++rank) {
    Place& place = *places[static_cast<size_t>(rank)];
    place.use();
    for (const size_t i : which) place.exchanges[i]->fill(round * 3 + i, rank, *place.stream);
  }
  NCCL(ncclGroupStart());
  for (const auto& place : places) {
    for (const size_t i : which) place->exchanges[i]->call(place->comm, *place->stream);
  }
  NCCL(ncclGroupEnd());
  for (const auto& place : places) {
    place->use();
    for (const size_t i : which) place->exchanges[i]->fetch(*place->stream);
    place->stream->wait();
    for (const size_t i : which) place->exchanges[i]->check(ranks);
  }
}

}  // namespace

TEST_CASE("job: one thread", "[.]") {
  Rank rank(-2);
  CU(cuInit(0));
  std::vector<std::unique_ptr<Place>> places;
  for (int device = 0; device < kGpus; ++device) places.push_back(std::make_unique<Place>(device));
  for (int making = 0; making < 2; ++making) {
    if (making == 0) {
      ncclComm_t comms[kGpus];
      NCCL(ncclCommInitAll(comms, kGpus, nullptr));
      for (size_t i = 0; i < kGpus; ++i) places[i]->comm = comms[i];
    } else {
      const ncclUniqueId id = rank.unique_id(0);
      NCCL(ncclGroupStart());
      for (int i = 0; i < kGpus; ++i) {
        places[static_cast<size_t>(i)]->use();
        NCCL(ncclCommInitRank(&places[static_cast<size_t>(i)]->comm, kGpus, id, i));
      }
      NCCL(ncclGroupEnd());
    }
    for (uint64_t round = 0; round < 60; ++round) {
      grouped_round(places, {0}, round);
      grouped_round(places, {0, 1}, round);
      grouped_round(places, {1, 2}, round);
      grouped_round(places, {2, 0}, round);
    }
    for (const auto& place : places) NCCL(ncclCommDestroy(place->comm));
  }
  std::puts("all right");
}

TEST_CASE("case_26_one_thread_several_gpus") {
  Job job("one thread", {.ranks = 1});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 1);
  CHECK(count_of(job.output(), "emulated cuda:") == 0);
  CHECK(lines_of(job.output(), "info", {"of 3 ranks: on,"}).size() == 2);
  CHECK(total(job.output(), "shunted") == 2 * kGpus * 60 * 3);
  CHECK(total(job.output(), "forwarded") == 2 * kGpus * 60 * 4);
}

TEST_CASE("job: threads", "[.]") {
  Rank rank(-2);
  CU(cuInit(0));
  const ncclUniqueId id = rank.unique_id(0);
  std::vector<std::thread> threads;
  std::string failures[kGpus];
  for (int own = 0; own < kGpus; ++own) {
    threads.emplace_back([&, own] {
      try {
        Place place(own);
        NCCL(ncclCommInitRank(&place.comm, kGpus, id, own));
        for (uint64_t round = 0; round < 200; ++round) {
          for (const auto& exchange : place.exchanges) {
            exchange->run(round, own, kGpus, place.comm, *place.stream);
          }
        }
        NCCL(ncclCommDestroy(place.comm));
      } catch (const std::exception& error) {
        failures[own] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) {
    if (!failure.empty()) throw std::runtime_error(failure);
  }
  std::puts("all right");
}

TEST_CASE("case_26_a_thread_for_each_gpu") {
  Job job("threads", {.ranks = 1});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(count_of(job.output(), "all right\n") == 1);
  CHECK(count_of(job.output(), "emulated cuda:") == 0);
  CHECK(lines_of(job.output(), "info", {"of 3 ranks: on,"}).size() == 1);
  CHECK(total(job.output(), "shunted") == kGpus * 200 * 2);
  CHECK(total(job.output(), "forwarded") == kGpus * 200);
}
