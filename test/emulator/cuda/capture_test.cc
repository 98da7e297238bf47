// Stream capture and graphs: what is allowed, and which error each mistake gives. Knows nothing of
// the emulator: run on a GPU, with the real libcuda.so.1, this program says where the emulator is
// wrong. Every wait has a deadline.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "test_support.h"

using namespace emu_test;

namespace {

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

void add_one(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

CUgraphExec instantiate(CUgraph graph) {
  CUgraphExec exec = nullptr;
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  return exec;
}

// The result of `call` while `stream` captures, and that of ending the capture.
template <typename F>
std::pair<CUresult, CUresult> while_capturing(CUstream stream, CUstreamCaptureMode mode, F call) {
  CU(cuStreamBeginCapture(stream, mode));
  const CUresult result = call();
  CUgraph graph = nullptr;
  const CUresult end = cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) cuGraphDestroy(graph);
  return {result, end};
}

using Results = std::pair<CUresult, CUresult>;
const Results kFine{CUDA_SUCCESS, CUDA_SUCCESS};
const Results kUnsafe{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};
const Results kImplicit{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED};

CUresult allocate_and_free() {
  CUdeviceptr address = 0;
  const CUresult result = cuMemAlloc(&address, 100);
  return result == CUDA_SUCCESS ? cuMemFree(address) : result;
}

}  // namespace

TEST_CASE("a graph replays what was captured, many times") {
  Gpu gpu(0);
  TestStream stream;
  std::atomic<int> counter{0};
  CU(cuStreamBeginCapture(stream, kGlobal));
  for (int i = 0; i < 3; ++i) CU(cuLaunchHostFunc(stream, add_one, &counter));
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  REQUIRE(counter == 0);
  size_t nodes = 0;
  CU(cuGraphGetNodes(graph, nullptr, &nodes));
  REQUIRE(nodes == 3);
  CUgraphExec exec = instantiate(graph);
  for (int i = 0; i < 100; ++i) CU(cuGraphLaunch(exec, stream));
  finish(stream);
  REQUIRE(counter == 300);
  CU(cuGraphExecDestroy(exec));
}

// What the next node captured on `stream` would depend on.
std::vector<CUgraphNode> tails_of(CUstream stream) {
  CUstreamCaptureStatus status;
  const CUgraphNode* tails = nullptr;
  size_t count = 0;
  CU(cuStreamGetCaptureInfo_v3(stream, &status, nullptr, nullptr, &tails, nullptr, &count));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  std::vector<CUgraphNode> sorted(tails, tails + count);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

using Nodes = std::vector<CUgraphNode>;

// before -> (left, right) -> after: how often each ran, and whether one ran out of turn.
struct Diamond {
  std::atomic<int> before{0}, left{0}, right{0}, after{0}, out_of_turn{0};
};

void run_before(void* diamond) {
  auto& d = *static_cast<Diamond*>(diamond);
  const int turn = d.before.fetch_add(1);
  if (d.after != turn) ++d.out_of_turn;
}
// The pause gives a node that does not wait for this one the time to overtake it.
template <std::atomic<int> Diamond::* kOwn>
void run_branch(void* diamond) {
  auto& d = *static_cast<Diamond*>(diamond);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const int turn = (d.*kOwn).fetch_add(1);
  if (d.before != turn + 1 || d.after != turn) ++d.out_of_turn;
}
void run_after(void* diamond) {
  auto& d = *static_cast<Diamond*>(diamond);
  const int turn = d.after.fetch_add(1) + 1;
  if (d.left != turn || d.right != turn) ++d.out_of_turn;
}

// Whether the branches run at once is the driver's business: real ones run host functions one after
// the other. That neither is ordered behind the other shows in the graph.
TEST_CASE("forked branches depend on the fork alone, and the join on both") {
  Gpu gpu(0);
  TestStream stream, side;
  TestEvent fork, join;
  Diamond diamond;
  CU(cuStreamBeginCapture(stream, kGlobal));
  CU(cuLaunchHostFunc(stream, run_before, &diamond));
  CU(cuEventRecord(fork, stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  const Nodes before = tails_of(stream);
  REQUIRE(before.size() == 1);
  REQUIRE(tails_of(side) == before);
  CU(cuLaunchHostFunc(stream, run_branch<&Diamond::left>, &diamond));
  REQUIRE(tails_of(side) == before);
  CU(cuLaunchHostFunc(side, run_branch<&Diamond::right>, &diamond));
  const Nodes left = tails_of(stream), right = tails_of(side);
  REQUIRE((left.size() == 1 && right.size() == 1));
  REQUIRE((left != before && right != before && left != right));
  CU(cuEventRecord(join, side));
  CU(cuStreamWaitEvent(stream, join, 0));
  Nodes both{left[0], right[0]};
  std::sort(both.begin(), both.end());
  REQUIRE(tails_of(stream) == both);
  CU(cuLaunchHostFunc(stream, run_after, &diamond));
  const Nodes after = tails_of(stream);
  REQUIRE((after.size() == 1 && after != left && after != right));
  CUgraph graph = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  CUstreamCaptureStatus status;
  CU(cuStreamIsCapturing(side, &status));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_NONE);
  CUgraphExec exec = instantiate(graph);
  constexpr int kReplays = 20;
  for (int i = 0; i < kReplays; ++i) {
    CU(cuGraphLaunch(exec, i % 2 == 0 ? stream : side));
    finish(i % 2 == 0 ? stream : side);
  }
  REQUIRE(diamond.after == kReplays);
  REQUIRE(diamond.out_of_turn == 0);
  CU(cuGraphExecDestroy(exec));
}

TEST_CASE("capture info names the graph and what comes next") {
  Gpu gpu(0);
  TestStream stream;
  std::atomic<int> counter{0};
  CUstreamCaptureStatus status;
  CU(cuStreamGetCaptureInfo_v3(stream, &status, nullptr, nullptr, nullptr, nullptr, nullptr));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_NONE);
  CU(cuStreamBeginCapture(stream, kRelaxed));
  CU(cuLaunchHostFunc(stream, add_one, &counter));
  cuuint64_t id = 0;
  CUgraph during = nullptr, graph = nullptr;
  const CUgraphNode* tail = nullptr;
  size_t count = 0;
  CU(cuStreamGetCaptureInfo_v3(stream, &status, &id, &during, &tail, nullptr, &count));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(count == 1);
  CUgraphNodeType type;
  CU(cuGraphNodeGetType(tail[0], &type));
  REQUIRE(type == CU_GRAPH_NODE_TYPE_HOST);
  CU(cuStreamEndCapture(stream, &graph));
  REQUIRE(graph == during);
  CU(cuGraphDestroy(graph));
}

TEST_CASE("unsafe calls are prohibited by mode") {
  Gpu gpu(0);
  TestStream stream;
  // A synchronous set is no rule: driver 580 does not answer kUnsafe to it, the emulator does.
  for (CUstreamCaptureMode mode : {kGlobal, kThreadLocal}) {
    REQUIRE(while_capturing(stream, mode, allocate_and_free) == kUnsafe);
  }
  REQUIRE(while_capturing(stream, kRelaxed, allocate_and_free) == kFine);
  REQUIRE(while_capturing(stream, kGlobal, [] {
            CUstreamCaptureMode mode = kRelaxed;
            cuThreadExchangeStreamCaptureMode(&mode);
            const CUresult result = allocate_and_free();
            cuThreadExchangeStreamCaptureMode(&mode);
            return result;
          }) == kFine);
}

TEST_CASE("another thread's global capture prohibits too") {
  Gpu gpu(0);
  TestStream stream;
  const auto elsewhere = [&](CUstreamCaptureMode thread_mode) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      cuCtxSetCurrent(gpu.context);
      cuThreadExchangeStreamCaptureMode(&thread_mode);
      result = allocate_and_free();
    }).join();
    return result;
  };
  REQUIRE(while_capturing(stream, kGlobal, [&] { return elsewhere(kGlobal); }) == kUnsafe);
  REQUIRE(while_capturing(stream, kGlobal, [&] { return elsewhere(kThreadLocal); }) == kFine);
  REQUIRE(while_capturing(stream, kGlobal, [&] { return elsewhere(kRelaxed); }) == kFine);
  REQUIRE(while_capturing(stream, kThreadLocal, [&] { return elsewhere(kGlobal); }) == kFine);
}

TEST_CASE("looking at what is captured breaks the capture") {
  Gpu gpu(0);
  TestStream stream, other;
  TestEvent event;
  REQUIRE(while_capturing(stream, kRelaxed, [&] { return cuStreamSynchronize(stream); }) ==
          kUnsafe);
  REQUIRE(while_capturing(stream, kRelaxed, [&] { return cuStreamQuery(stream); }) == kUnsafe);
  REQUIRE(while_capturing(stream, kRelaxed, [&] { return cuCtxSynchronize(); }) == kUnsafe);
  REQUIRE(while_capturing(stream, kRelaxed, [&] { return cuStreamSynchronize(other); }) == kFine);
  REQUIRE(while_capturing(stream, kRelaxed, [&] {
            CU(cuEventRecord(event, stream));
            return cuEventQuery(event);
          }) == Results{CUDA_ERROR_CAPTURED_EVENT, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED});
}

TEST_CASE("the legacy stream and a capturing blocking stream do not mix") {
  Gpu gpu(0);
  TestStream blocking(CU_STREAM_DEFAULT), free_running;
  std::atomic<int> counter{0};
  const auto use_legacy = [&] { return cuLaunchHostFunc(nullptr, add_one, &counter); };
  REQUIRE(while_capturing(blocking, kRelaxed, use_legacy) == kImplicit);
  REQUIRE(while_capturing(free_running, kRelaxed, use_legacy) == kFine);
  CUstreamCaptureStatus status;
  REQUIRE(while_capturing(blocking, kRelaxed, [&] {
            return cuStreamIsCapturing(nullptr, &status);
          }) == Results{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_SUCCESS});
  REQUIRE(cuStreamBeginCapture(nullptr, kGlobal) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  finish(nullptr);
  finish(free_running);
}

TEST_CASE("dependencies may not cross the edge of a capture") {
  Gpu gpu(0);
  TestStream stream, other, eager;
  TestEvent eager_event, captured_event, other_event;
  CU(cuEventRecord(eager_event, eager));
  REQUIRE(while_capturing(stream, kRelaxed,
                          [&] { return cuStreamWaitEvent(stream, eager_event, 0); }) ==
          Results{CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED});
  REQUIRE(while_capturing(stream, kRelaxed,
                          [&] { return cuEventRecord(captured_event, stream); }) == kFine);
  REQUIRE(cuStreamWaitEvent(eager, captured_event, 0) !=
          CUDA_SUCCESS);  // of a capture that is over
  REQUIRE(while_capturing(other, kRelaxed, [&] {
            CU(cuEventRecord(other_event, other));
            return while_capturing(stream, kRelaxed,
                                   [&] { return cuStreamWaitEvent(stream, other_event, 0); })
                .first;
          }) == Results{CUDA_ERROR_STREAM_CAPTURE_MERGE, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED});
}

TEST_CASE("captures end where and how they began") {
  Gpu gpu(0);
  TestStream stream, side;
  TestEvent fork;
  std::atomic<int> counter{0};
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE(while_capturing(stream, kGlobal, [&] {
            CU(cuEventRecord(fork, stream));
            CU(cuStreamWaitEvent(side, fork, 0));
            return cuLaunchHostFunc(side, add_one, &counter);
          }) == Results{CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_UNJOINED});
  REQUIRE(
      while_capturing(stream, kGlobal, [&] {
        CU(cuEventRecord(fork, stream));
        CU(cuStreamWaitEvent(side, fork, 0));
        return cuStreamEndCapture(side, &graph);
      }) == Results{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED});
  REQUIRE(while_capturing(stream, kThreadLocal, [&] {
            CUresult result = CUDA_SUCCESS;
            std::thread([&] { result = cuStreamEndCapture(stream, &graph); }).join();
            return result;
          }).first == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CUstreamCaptureStatus status;
  CU(cuStreamIsCapturing(stream, &status));
  REQUIRE(status == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("what may be asked about a stream that captures") {
  Gpu gpu(0);
  TestStream stream;
  unsigned long long id = 0;
  CU(cuStreamGetId(stream, &id));
  for (const auto mode : {kGlobal, kThreadLocal, kRelaxed}) {
    CAPTURE(mode);
    REQUIRE(while_capturing(stream, mode, [&] { return cuStreamGetId(stream, &id); }) == kUnsafe);
    REQUIRE(while_capturing(stream, mode, [&] {
              CUevent event = nullptr;
              const CUresult result = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
              return result == CUDA_SUCCESS ? cuEventDestroy(event) : result;
            }) == kFine);
    REQUIRE(while_capturing(stream, mode, [&] {
              CUcontext context = nullptr;
              const CUresult result = cuCtxGetCurrent(&context);
              return result == CUDA_SUCCESS ? cuCtxPushCurrent(context) : result;
            }) == kFine);
  }
}
