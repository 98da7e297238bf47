// The NCCL stand-in: making communicators, refusing, and the ways in which things end.
#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "test/catch.h"
#include "test/emulator/nccl/standin_ranks.h"

using namespace standin_test;
using Clock = std::chrono::steady_clock;

namespace {

const std::vector<int> kOne(1, 0), kTwo(2, 0), kFour(4, 0);

void sum_is(ncclComm_t comm, CUstream stream, float mine, float want) {
  Buffer<float> b(10, mine);
  NCCL_OK(ncclAllReduce(b.data(), b.data(), 10, ncclFloat, ncclSum, comm, stream));
  CU_OK(cuStreamSynchronize(stream));
  ENSURE(b.get() == std::vector<float>(10, want));
}

// What the process says on stderr from now on.
int capture_stderr() {
  const int fd = memfd_create("stderr", 0);
  dup2(fd, STDERR_FILENO);
  return fd;
}
std::string text_of(int fd) {
  std::string text(65536, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, pread(fd, text.data(), text.size(), 0))));
  return text;
}

size_t open_files() {
  size_t open = 0;
  for (int fd = 0; fd < 256; ++fd) open += fcntl(fd, F_GETFD) >= 0;
  return open;
}

}  // namespace

TEST_CASE("split by color and key, no color, shrink") {
  REQUIRE(run_ranks(4, [](const Rank& r) {
            ncclComm_t world = make_world(r);
            Stream s;
            ncclComm_t pair = nullptr;
            NCCL_OK(ncclCommSplit(world, r.rank % 2, -r.rank, &pair, nullptr));
            int count = 0, rank = -1, device = -1;
            NCCL_OK(ncclCommCount(pair, &count));
            NCCL_OK(ncclCommUserRank(pair, &rank));
            NCCL_OK(ncclCommCuDevice(pair, &device));
            ENSURE(count == 2 && rank == (r.rank < 2 ? 1 : 0) && device == r.rank);
            sum_is(pair, s, static_cast<float>(r.rank), r.rank % 2 ? 4.0f : 2.0f);

            ncclComm_t some = reinterpret_cast<ncclComm_t>(1);
            NCCL_OK(ncclCommSplit(world, r.rank == 3 ? NCCL_SPLIT_NOCOLOR : 5, 0, &some, nullptr));
            ENSURE((some == nullptr) == (r.rank == 3));
            if (some) sum_is(some, s, 1, 3);

            ncclComm_t shrunk = nullptr;
            int excluded[] = {1};
            if (r.rank != 1) {
              NCCL_OK(ncclCommShrink(world, excluded, 1, &shrunk, nullptr, NCCL_SHRINK_DEFAULT));
              sum_is(shrunk, s, static_cast<float>(r.rank), 5);
            }
            sum_is(world, s, 1, 4);

            ncclComm_t first = nullptr, second = nullptr;
            NCCL_OK(ncclGroupStart());
            NCCL_OK(ncclCommSplit(world, r.rank / 2, 0, &first, nullptr));
            NCCL_OK(ncclCommSplit(world, 0, -r.rank, &second, nullptr));
            NCCL_OK(ncclGroupEnd());
            NCCL_OK(ncclCommUserRank(second, &rank));
            ENSURE(rank == 3 - r.rank);
            sum_is(first, s, 1, 2);
            for (ncclComm_t comm : {first, second, pair, some, shrunk, world})
              NCCL_OK(ncclCommDestroy(comm));
          }) == kFour);
}

TEST_CASE("abort ends what waits for a rank that never comes; so does shrink with abort") {
  REQUIRE(run_ranks(2, [](const Rank& r) {
            ncclComm_t world = make_world(r);
            ncclComm_t other = nullptr;
            NCCL_OK(ncclCommSplit(world, 0, 0, &other, nullptr));
            if (r.rank == 1) {
              r.shared.wait_for(0, 1);
              return;
            }
            Stream s;
            Buffer<float> b(10, 3);
            NCCL_OK(ncclAllReduce(b.data(), b.data(), 10, ncclFloat, ncclSum, world, s));
            NCCL_OK(ncclAllReduce(b.data(), b.data(), 10, ncclFloat, ncclSum, other, s));
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            ENSURE(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
            const auto start = Clock::now();
            std::thread([&] {
              NCCL_OK(ncclCommAbort(world));
              int excluded[] = {1};
              ncclComm_t alone = nullptr;
              NCCL_OK(ncclCommShrink(other, excluded, 1, &alone, nullptr, NCCL_SHRINK_ABORT));
              use_device(0);
              sum_is(alone, s, 2, 2);
              NCCL_OK(ncclCommDestroy(alone));
              NCCL_OK(ncclCommAbort(other));
            }).join();
            s.wait();
            ENSURE(Clock::now() - start < std::chrono::seconds(5));
            ENSURE(b.get() == std::vector<float>(10, 3));
            r.shared.flags[0].store(1);
          }) == kTwo);
}

TEST_CASE("a killed peer is waited for until the abort; revoke stops and refuses") {
  const auto statuses = run_ranks(3, [](const Rank& r) {
    ncclComm_t world = make_world(r);
    ncclComm_t pair = nullptr;
    NCCL_OK(ncclCommSplit(world, r.rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, 0, &pair, nullptr));
    if (r.rank == 2) raise(SIGKILL);
    Stream s, t;
    // Freed at the end only: cuMemFree waits for all streams, as the real one does.
    Buffer<float> b(10, 3), c(10, 1);
    NCCL_OK(ncclAllReduce(b.data(), b.data(), 10, ncclFloat, ncclSum, world, s));
    NCCL_OK(ncclAllReduce(c.data(), c.data(), 10, ncclFloat, ncclSum, pair, t));
    t.wait();
    ENSURE(c.get() == std::vector<float>(10, 2));
    ENSURE(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
    NCCL_OK(ncclCommRevoke(world, NCCL_REVOKE_DEFAULT));
    s.wait();
    ENSURE(ncclAllReduce(b.data(), b.data(), 10, ncclFloat, ncclSum, world, s) == ncclInvalidUsage);
    ENSURE(ncclCommRevoke(world, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
    NCCL_OK(ncclCommAbort(world));
    NCCL_OK(ncclCommDestroy(pair));
  });
  REQUIRE(statuses == std::vector<int>{0, 0, 128 + SIGKILL});
}

TEST_CASE("a non-blocking communicator is polled, and aborted while its ranks are missing") {
  REQUIRE(run_ranks(2, [](const Rank& r) {
            use_device(r.rank);
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            config.blocking = 0;
            ncclComm_t comm = nullptr;
            ncclResult_t state = ncclSuccess;
            if (r.rank == 0) {
              NCCL_OK(ncclGetUniqueId(&r.shared.id));
              ENSURE(ncclCommInitRankConfig(&comm, 2, r.shared.id, 0, &config) == ncclInProgress);
              NCCL_OK(ncclCommGetAsyncError(comm, &state));
              ENSURE(state == ncclInProgress);
              int count = 0;
              ENSURE(ncclCommCount(comm, &count) == ncclInvalidArgument);
              r.shared.id_ready.store(1);
            } else {
              while (r.shared.id_ready.load() == 0) std::this_thread::yield();
              ENSURE(ncclCommInitRankConfig(&comm, 2, r.shared.id, 1, &config) == ncclInProgress);
            }
            do NCCL_OK(ncclCommGetAsyncError(comm, &state));
            while (state == ncclInProgress);
            ENSURE(state == ncclSuccess);
            {
              Stream s;
              sum_is(comm, s, 1, 2);
            }
            NCCL_OK(ncclCommDestroy(comm));
            ncclUniqueId lonely;
            NCCL_OK(ncclGetUniqueId(&lonely));
            ENSURE(ncclCommInitRankConfig(&comm, 2, lonely, 0, &config) == ncclInProgress);
            NCCL_OK(ncclCommAbort(comm));
          }) == kTwo);
}

TEST_CASE("arguments are refused as NCCL refuses them") {
  REQUIRE(run_ranks(1, [](const Rank& r) {
            ncclComm_t comm = make_world(r);
            Stream s;
            Buffer<float> b(4, 1);
            float* p = b.data();
            ENSURE(ncclAllReduce(p, p, 4, ncclFloat, ncclSum, nullptr, s) == ncclInvalidArgument);
            ENSURE(ncclAllReduce(p, p, 4, ncclNumTypes, ncclSum, comm, s) == ncclInvalidArgument);
            ENSURE(ncclAllReduce(p, p, 4, ncclFloat, ncclNumOps, comm, s) == ncclInvalidArgument);
            ENSURE(ncclBroadcast(p, p, 4, ncclFloat, 1, comm, s) == ncclInvalidArgument);
            NCCL_OK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, comm, s));
            ENSURE(std::string(ncclGetErrorString(ncclInvalidArgument)) ==
                   "invalid argument (run with NCCL_DEBUG=WARN for details)");
            ENSURE(std::string(ncclGetLastError(comm)).find("invalid root 1") != std::string::npos);
            ncclComm_t bad = nullptr;
            ENSURE(ncclCommInitRank(&bad, 2, r.shared.id, 2) == ncclInvalidArgument &&
                   bad == nullptr);
            ENSURE(ncclCommInitRank(&bad, 1, r.shared.id, 0) == ncclSystemError);
            int same[] = {0, 0};
            ncclComm_t comms[2];
            ENSURE(ncclCommInitAll(comms, 2, same) == ncclInvalidUsage);
            ncclUniqueId id;
            NCCL_OK(ncclGetUniqueId(&id));
            NCCL_OK(ncclGroupStart());
            for (int i = 0; i < 2; ++i) NCCL_OK(ncclCommInitRank(comms + i, 2, id, i));
            ENSURE(ncclGroupEnd() == ncclInvalidUsage);  // one GPU twice
            ENSURE(comms[0] == nullptr && comms[1] == nullptr);
            NCCL_OK(ncclGetUniqueId(&id));
            NCCL_OK(ncclGroupStart());
            NCCL_OK(ncclCommInitRank(comms, 1, id, 0));
            ENSURE(ncclSend(p, 4, ncclFloat, 7, comm, s) == ncclInvalidArgument);
            ENSURE(ncclGroupEnd() == ncclInvalidArgument && comms[0] == nullptr);
            NCCL_OK(ncclCommDestroy(comm));
          }) == kOne);
}

TEST_CASE("mismatched calls are reported by every rank and wait") {
  REQUIRE(run_ranks(2, [](const Rank& r) {
            ncclComm_t comm = make_world(r);
            const int said = capture_stderr();
            Stream s;
            Buffer<float> b(100, 1);
            NCCL_OK(
                ncclAllReduce(b.data(), b.data(), r.rank ? 99 : 100, ncclFloat, ncclSum, comm, s));
            while (text_of(said).find("emulated nccl: mismatched calls") == std::string::npos)
              std::this_thread::yield();
            ENSURE(cuStreamQuery(s) == CUDA_ERROR_NOT_READY);
            NCCL_OK(ncclCommAbort(comm));
          }) == kTwo);
}

TEST_CASE("a thousand communicators leave nothing behind") {
  REQUIRE(run_ranks(1, [](const Rank&) {
            CU_OK(cuInit(0));
            size_t before = 0;
            for (int i = 0; i < 1000; ++i) {
              ncclComm_t comms[2];
              NCCL_OK(ncclCommInitAll(comms, 2, nullptr));
              for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
              if (i == 10) before = open_files();
            }
            ENSURE(open_files() == before);
          }) == kOne);
}

TEST_CASE("a job killed while its ranks join leaves nothing, and the next one starts clean") {
  REQUIRE(run_ranks(2, [](const Rank& r) {
            use_device(r.rank);
            if (r.rank == 0) {
              NCCL_OK(ncclGetUniqueId(&r.shared.id));
              r.shared.id_ready.store(1);
              raise(SIGKILL);
            }
            while (r.shared.id_ready.load() == 0) std::this_thread::yield();
            while (kill(getppid(), 0) == 0 && r.shared.flags[0].load() < 100) {
              ncclComm_t comm = nullptr;
              std::thread([&] {
                use_device(1);
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;
                ncclCommInitRankConfig(&comm, 2, r.shared.id, 1, &config);
              }).join();
              std::this_thread::sleep_for(std::chrono::milliseconds(2));
              ncclResult_t state = ncclInProgress;
              NCCL_OK(ncclCommGetAsyncError(comm, &state));
              NCCL_OK(ncclCommAbort(comm));
              if (state == ncclSystemError) return;  // the maker is gone, and its memory with it
              r.shared.flags[0].fetch_add(1);
            }
            ENSURE(!"the dead maker's memory was found");
          }) == std::vector<int>{128 + SIGKILL, 0});
}

TEST_CASE("copies: two libraries in one process, an older one without the newer names; the trace") {
  REQUIRE(run_ranks(1, [](const Rank& r) {
            const int fd = memfd_create("trace", 0);
            setenv("EMU_NCCL_TRACE", ("/proc/self/fd/" + std::to_string(fd)).c_str(), 1);
            void* second = dlopen(STANDIN_SECOND, RTLD_NOW | RTLD_LOCAL);
            void* older = dlopen(STANDIN_2_18, RTLD_NOW | RTLD_LOCAL);
            ENSURE(second != nullptr && older != nullptr);
            const auto other =
                reinterpret_cast<decltype(&ncclCommInitAll)>(dlsym(second, "ncclCommInitAll"));
            ENSURE(other != nullptr && other != &ncclCommInitAll);
            ENSURE(dlsym(second, "ncclAlltoAll") != nullptr);
            CU_OK(cuInit(0));
            ncclComm_t comm = nullptr;
            NCCL_OK(other(&comm, 1, nullptr));
            NCCL_OK(reinterpret_cast<decltype(&ncclCommDestroy)>(dlsym(second, "ncclCommDestroy"))(
                comm));
            ncclComm_t own = make_world(r);
            {
              Stream s;
              sum_is(own, s, 1, 1);
              Buffer<float> b(3);
              CUgraph graph = nullptr;
              CU_OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
              NCCL_OK(ncclReduce(b.data(), b.data(), 3, ncclFloat, ncclMax, 0, own, s));
              CU_OK(cuStreamEndCapture(s, &graph));
              CU_OK(cuGraphDestroy(graph));
            }
            NCCL_OK(ncclCommDestroy(own));
            const std::string text = text_of(fd);
            ENSURE(text.find("lib=second") != std::string::npos);
            ENSURE(text.find("fn=ncclAllReduce comm=") != std::string::npos);
            ENSURE(text.find("rank=0/1 depth=0 bytes=40 type=float op=sum root=0 capture=0") !=
                   std::string::npos);
            ENSURE(text.find("bytes=12 type=float op=max root=0 capture=1") != std::string::npos);
            ENSURE(text.find("fn=ncclCommGetAsyncError") == std::string::npos);
          }) == kOne);
}

TEST_CASE("the older copy lacks what NCCL 2.18 lacks") {
  REQUIRE(run_ranks(1, [](const Rank&) {
            void* older = dlmopen(LM_ID_NEWLM, STANDIN_2_18, RTLD_NOW);
            ENSURE(older != nullptr);
            int version = 0;
            NCCL_OK(reinterpret_cast<decltype(&ncclGetVersion)>(dlsym(older, "ncclGetVersion"))(
                &version));
            ENSURE(version == 21805);
            ENSURE(dlsym(older, "pncclCommSplit") != nullptr);
            for (const char* name :
                 {"ncclCommShrink", "ncclCommInitRankScalable", "ncclCommRevoke",
                  "ncclGroupSimulateEnd", "ncclAlltoAll", "ncclGather", "ncclScatter"})
              ENSURE(dlsym(older, name) == nullptr);
          }) == kOne);
}
