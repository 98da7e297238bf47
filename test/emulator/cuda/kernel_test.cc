// Kernels of the emulated driver: the project's own, on two emulated GPUs of one process.
#include <chrono>
#include <cmath>
#include <thread>

#include "test_rank.h"

using namespace emu_test;

namespace {

constexpr size_t kCounts[] = {1, 5, 1000, 4096};

void all_reduce(Pair& pair, size_t count, float a, float b) {
  pair.fill(a, b);
  for (int rank : {0, 1}) pair[rank].launch(pair[rank].stream(), count);
  for (int rank : {0, 1}) {
    CU(cuStreamSynchronize(pair[rank].stream()));
    for (size_t i = 0; i < count; ++i) REQUIRE(pair[rank].received()[i] == a + b);
    if (count * sizeof(float) < Rank::kCap) REQUIRE(pair[rank].received()[count] == -1);
  }
}

}  // namespace

TEST_CASE("kernels of two GPUs meet") {
  Pair pair;
  for (int round = 0; round < 20; ++round) {
    for (size_t count : kCounts) all_reduce(pair, count, static_cast<float>(round), 1.5f);
  }
}

TEST_CASE("a waiting kernel runs on and ends by abort") {
  Pair pair;
  pair.fill(1, 2);
  pair[0].launch(pair[0].stream(), 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(cuStreamQuery(pair[0].stream()) == CUDA_ERROR_NOT_READY);
  pair[0].order(shunt::HostOrder::kAbort);
  CU(cuStreamSynchronize(pair[0].stream()));
  REQUIRE(pair[0].stopped() == shunt::Stop::kAborted);
}

TEST_CASE("captured kernels keep their parameters") {
  Pair pair;
  CUgraphExec execs[2];
  for (int rank : {0, 1}) {
    CUgraph graph = nullptr;
    CU(cuStreamBeginCapture(pair[rank].stream(), CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (size_t count : kCounts) pair[rank].launch(pair[rank].stream(), count);
    CU(cuStreamEndCapture(pair[rank].stream(), &graph));
    CU(cuGraphInstantiate(&execs[rank], graph, 0));
    CU(cuGraphDestroy(graph));
  }
  for (int round = 0; round < 50; ++round) {
    pair.fill(static_cast<float>(round), 3);
    for (int rank : {0, 1}) CU(cuGraphLaunch(execs[rank], pair[rank].stream()));
    for (int rank : {0, 1}) {
      CU(cuStreamSynchronize(pair[rank].stream()));
      REQUIRE(pair[rank].received()[0] == static_cast<float>(round) + 3);
      REQUIRE(pair[rank].received()[4095] == static_cast<float>(round) + 3);
    }
  }
  for (CUgraphExec exec : execs) CU(cuGraphExecDestroy(exec));
}

TEST_CASE("launches are checked") {
  Pair pair;
  pair[0].make_current();
  CUfunction kernel = pair[0].function("shunt_all_reduce_int8_flagged_any_1");
  shunt::AllReduceParams params{};
  void* arguments[] = {&params};
  REQUIRE(cuLaunchKernel(kernel, 1, 1, 1, 97, 1, 1, 0, pair[0].stream(), arguments, nullptr) ==
          CUDA_ERROR_INVALID_VALUE);
  pair[1].make_current();
  REQUIRE(cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, pair[0].stream(), arguments, nullptr) ==
          CUDA_ERROR_INVALID_HANDLE);
  CUfunction none = nullptr;
  CUmodule module = nullptr;
  const uint32_t image[4] = {0xba55ed50};
  CU(cuModuleLoadData(&module, image));
  REQUIRE(cuModuleGetFunction(&none, module, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
  CU(cuModuleUnload(module));
  REQUIRE(cuModuleLoadData(&module, "text") == CUDA_ERROR_INVALID_IMAGE);
}

// ---- each in a process of its own: a fault ends the context, settings are read once
// -----------------

TEST_CASE("case: trap", "[.]") {
  Pair pair;
  pair.fill(1, 2);
  pair[0].launch(pair[0].stream(), 100);
  TestStream other;
  TestEvent event;
  pair[0].launch(other, 100);
  CU(cuEventRecord(event, other));
  pair[0].order(shunt::HostOrder::kTrap);
  REQUIRE(cuStreamSynchronize(other) == CUDA_ERROR_LAUNCH_FAILED);
  REQUIRE(cuStreamSynchronize(pair[0].stream()) == CUDA_ERROR_LAUNCH_FAILED);
  REQUIRE(cuEventQuery(event) == CUDA_ERROR_LAUNCH_FAILED);
  CUdeviceptr memory = 0;
  pair[0].make_current();
  REQUIRE(cuMemAlloc(&memory, 100) == CUDA_ERROR_LAUNCH_FAILED);
  pair[1].make_current();  // the other GPU lives on
  CU(cuMemAlloc(&memory, 100));
}

TEST_CASE("case: exit with a spinning kernel", "[.]") {
  static Pair& pair = *new Pair;
  pair.fill(1, 2);
  pair[0].launch(pair[0].stream(), 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

TEST_CASE("case: no peer access", "[.]") {
  CU(cuInit(0));
  int can = 1;
  CU(cuDeviceCanAccessPeer(&can, 0, 1));
  REQUIRE(can == 0);
  CU(cuDeviceCanAccessPeer(&can, 1, 0));
  REQUIRE(can == 1);
  Gpu peer(1), gpu(0);
  REQUIRE(cuCtxEnablePeerAccess(peer.context, 0) == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
}

// How many of `count` elements are wrong on rank 1 after one all-reduce with a deadline; -1:
// unfinished.
int wrong_elements(size_t count, bool in_graph = false) {
  Pair pair;
  pair.fill(1, 2);
  for (int rank : {0, 1}) {
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    if (in_graph) CU(cuStreamBeginCapture(pair[rank].stream(), CU_STREAM_CAPTURE_MODE_GLOBAL));
    pair[rank].launch(pair[rank].stream(), count, 300'000'000);
    if (!in_graph) continue;
    CU(cuStreamEndCapture(pair[rank].stream(), &graph));
    CU(cuGraphInstantiate(&exec, graph, 0));
    CU(cuGraphLaunch(exec, pair[rank].stream()));
  }
  for (int rank : {0, 1}) CU(cuStreamSynchronize(pair[rank].stream()));
  if (pair[1].stopped() != shunt::Stop::kNone) return -1;
  int wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += pair[1].received()[i] != 3;
  return wrong;
}

TEST_CASE("case: stores are dropped", "[.]") { REQUIRE(wrong_elements(100) == -1); }
TEST_CASE("case: a byte is changed", "[.]") { REQUIRE(wrong_elements(100) == 1); }
TEST_CASE("case: only above 8 KiB", "[.]") {
  REQUIRE(wrong_elements(2048) == 0);
  REQUIRE(wrong_elements(2049) == 1);
}
TEST_CASE("case: only in graphs", "[.]") {
  REQUIRE(wrong_elements(100) == 0);
  REQUIRE(wrong_elements(100, true) == 1);
}
TEST_CASE("case: only after 4 launches", "[.]") {
  REQUIRE(wrong_elements(100) == 0);
  REQUIRE(wrong_elements(100) == 0);
  REQUIRE(wrong_elements(100) == 1);
}

TEST_CASE("case: first launch behind a waiting kernel", "[.]") {
  Pair pair;
  pair.fill(1, 2);
  pair[0].launch(pair[0].stream(), 100);
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    pair[0].order(shunt::HostOrder::kAbort);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto begin = std::chrono::steady_clock::now();
  pair[0].make_current();
  CU(cuFuncLoad(pair[0].function("shunt_all_reduce_int8_flagged_any_1")));
  const auto took = std::chrono::steady_clock::now() - begin;
  aborter.join();
  const char* mode = std::getenv("CUDA_MODULE_LOADING");
  const bool eager = mode != nullptr && std::string(mode) == "EAGER";
  REQUIRE((took > std::chrono::milliseconds(100)) == !eager);
}

// Words of one packet arrive one by one: some moment sees a later word without an earlier one.
TEST_CASE("case: words out of order", "[.]") {
  Pair pair;
  int out_of_order = 0;
  for (int round = 0; round < 200; ++round) {
    pair.fill(1, 2);
    const uint32_t* packet = pair[1].next_packet();
    pair[0].launch(pair[0].stream(), 4);
    bool seen = false;
    for (;;) {
      const uint32_t last = __atomic_load_n(packet + 3, __ATOMIC_ACQUIRE);
      const uint32_t first = __atomic_load_n(packet, __ATOMIC_ACQUIRE);
      seen |= last != ~0u && first == ~0u;
      if (last != ~0u && first != ~0u) break;
    }
    out_of_order += seen;
    pair[1].launch(pair[1].stream(), 4);
    for (int rank : {0, 1}) CU(cuStreamSynchronize(pair[rank].stream()));
    REQUIRE(pair[1].received()[3] == 3);
  }
  WARN("out of order in " << out_of_order << " of 200 packets");
  const bool hostile = std::getenv("EMU_HOSTILE") != nullptr;
  REQUIRE((out_of_order > 5) == hostile);
}

TEST_CASE("case: sums are right", "[.]") {
  Pair pair;
  for (int round = 0; round < 50; ++round) {
    for (size_t count : kCounts) all_reduce(pair, count, static_cast<float>(round), 1.5f);
  }
}

TEST_CASE("faults, traps and hostile delivery") {
  using Case = std::pair<const char*, std::vector<std::string>>;
  const Case cases[] = {
      {"case: trap", {}},
      {"case: exit with a spinning kernel", {}},
      {"case: no peer access", {"EMU_NO_P2P=0>1"}},
      {"case: stores are dropped", {"EMU_DROP=0>1"}},
      {"case: a byte is changed", {"EMU_CORRUPT=0>*"}},
      {"case: only above 8 KiB", {"EMU_CORRUPT=0>1:above=8192"}},
      {"case: only in graphs", {"EMU_CORRUPT=0>1:graph"}},
      {"case: only after 4 launches", {"EMU_CORRUPT=1>0,0>1:after=4"}},
      {"case: first launch behind a waiting kernel", {}},
      {"case: first launch behind a waiting kernel", {"CUDA_MODULE_LOADING=EAGER"}},
      {"case: words out of order", {}},
      {"case: words out of order", {"EMU_HOSTILE=7"}},
      {"case: sums are right", {"EMU_HOSTILE=1"}},
      {"case: sums are right", {"EMU_HOSTILE=2"}},
      {"case: sums are right", {"EMU_KERNEL_DELAY_US=1:500"}},
  };
  for (const auto& [name, environment] : cases) {
    const Outcome outcome = run_case(name, environment);
    INFO(name << "\n" << outcome.output);
    CHECK(outcome.status == 0);
  }
}
