// Devices, memory, streams and events of the emulated driver.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "test_support.h"

using namespace emu_test;

namespace {

void add_one(void* counter) { ++*static_cast<int*>(counter); }

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("devices are known by a fixed UUID and small attributes") {
  Gpu gpu(0);
  int count = 0;
  CU(cuDeviceGetCount(&count));
  REQUIRE(count == 8);
  CUuuid first{}, second{}, again{};
  CU(cuDeviceGetUuid(&first, 0));
  CU(cuDeviceGetUuid(&second, 1));
  CU(cuDeviceGetUuid(&again, 0));
  REQUIRE(std::memcmp(&first, &again, sizeof(first)) == 0);
  REQUIRE(std::memcmp(&first, &second, sizeof(first)) != 0);
  int value = 0;
  CU(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0));
  REQUIRE(value == 96);
  CUdevice device = 0;
  REQUIRE(cuDeviceGet(&device, 8) == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("memory is counted, copied and given back") {
  Gpu gpu(0);
  TestStream stream;
  size_t before = 0, during = 0, total = 0;
  CU(cuMemGetInfo(&before, &total));
  REQUIRE(total == size_t{1} << 30);
  {
    TestMemory memory(1000);
    CU(cuMemGetInfo(&during, &total));
    REQUIRE(during < before);
    char text[] = "through the GPU", back[sizeof(text)] = {};
    CU(cuMemcpyHtoDAsync(memory.address, text, sizeof(text), stream));
    std::memset(text, 'x', sizeof(text) - 1);  // pageable memory was staged
    CU(cuMemcpyDtoHAsync(back, memory.address, sizeof(text), stream));
    REQUIRE(std::string(back) == "through the GPU");
    CU(cuMemsetD32(memory.address, 7, 250));
    uint32_t last = 0;
    CU(cuMemcpyDtoH(&last, memory.address + 996, 4));
    REQUIRE(last == 7);
    REQUIRE(cuMemsetD8Async(memory.address, 0, 1001, stream) == CUDA_ERROR_INVALID_VALUE);
  }
  CU(cuMemGetInfo(&during, &total));
  REQUIRE(during == before);
  CUdeviceptr too_much = 0;
  REQUIRE(cuMemAlloc(&too_much, total + 1) == CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_CASE("pointers say what they are") {
  Gpu gpu(2);
  TestMemory memory(4096);
  int ordinal = -1;
  CU(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory.address + 100));
  REQUIRE(ordinal == 2);
  unsigned type = 0;
  void* pinned = nullptr;
  CU(cuMemHostAlloc(&pinned, 100, CU_MEMHOSTALLOC_DEVICEMAP));
  CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                           reinterpret_cast<CUdeviceptr>(pinned)));
  REQUIRE(type == CU_MEMORYTYPE_HOST);
  CU(cuMemFreeHost(pinned));
  int on_stack = 0;
  REQUIRE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                reinterpret_cast<CUdeviceptr>(&on_stack)) ==
          CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("pages side by side are registered one by one") {
  const Gpu gpu(0);
  constexpr size_t kPage = 4096;
  auto* pages = static_cast<char*>(
      mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  CU(cuMemHostRegister(pages + kPage, kPage, 0));
  CU(cuMemHostRegister(pages + 2 * kPage, kPage, 0));
  CU(cuMemHostRegister(pages, kPage, 0));
  for (const size_t bytes : {size_t{1}, kPage, 2 * kPage}) {
    CHECK(cuMemHostRegister(pages + 2 * kPage, bytes, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  }
  CU(cuMemHostUnregister(pages + kPage));
  CHECK(cuMemHostRegister(pages + kPage, 2 * kPage, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CU(cuMemHostRegister(pages + kPage, kPage, 0));
  for (int page = 0; page < 3; ++page) CU(cuMemHostUnregister(pages + page * kPage));
  munmap(pages, 4 * kPage);
}

TEST_CASE("streams run asynchronously and in order") {
  Gpu gpu(0);
  TestStream stream, other;
  int counter = 0;
  Gate gate;
  gate.block(stream);
  for (int i = 0; i < 10; ++i) CU(cuLaunchHostFunc(stream, add_one, &counter));
  REQUIRE(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  CU(cuStreamSynchronize(other));  // streams do not wait for each other
  gate.release();
  CU(cuStreamSynchronize(stream));
  REQUIRE(counter == 10);
  CU(cuStreamQuery(stream));
  unsigned long long id = 0, other_id = 0;
  CU(cuStreamGetId(stream, &id));
  CU(cuStreamGetId(other, &other_id));
  REQUIRE(id != other_id);
}

TEST_CASE("the legacy stream waits for blocking streams and they for it") {
  Gpu gpu(0);
  TestStream blocking(CU_STREAM_DEFAULT), free_running;
  int counter = 0;
  Gate gate;
  gate.block(blocking);
  CU(cuLaunchHostFunc(nullptr, add_one, &counter));
  CU(cuStreamSynchronize(free_running));
  sleep_ms(20);
  REQUIRE(counter == 0);
  REQUIRE(cuStreamQuery(CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY);
  gate.release();
  CU(cuStreamSynchronize(nullptr));
  REQUIRE(counter == 1);

  Gate legacy_gate;
  legacy_gate.block(nullptr);
  CU(cuLaunchHostFunc(blocking, add_one, &counter));
  CU(cuLaunchHostFunc(CU_STREAM_PER_THREAD, add_one, &counter));
  CU(cuLaunchHostFunc(free_running, add_one, &counter));
  CU(cuStreamSynchronize(free_running));
  sleep_ms(20);
  REQUIRE(counter == 2);
  legacy_gate.release();
  CU(cuCtxSynchronize());
  REQUIRE(counter == 4);
}

TEST_CASE("events order streams and measure time") {
  Gpu gpu(0);
  TestStream producer, consumer;
  TestEvent start, ready;
  int counter = 0;
  Gate gate;
  CU(cuEventQuery(ready));  // never recorded: nothing to wait for
  CU(cuEventRecord(start, producer));
  gate.block(producer);
  CU(cuEventRecord(ready, producer));
  CU(cuStreamWaitEvent(consumer, ready, 0));
  CU(cuLaunchHostFunc(consumer, add_one, &counter));
  REQUIRE(cuEventQuery(ready) == CUDA_ERROR_NOT_READY);
  sleep_ms(20);
  REQUIRE(counter == 0);
  gate.release();
  CU(cuEventSynchronize(ready));
  CU(cuStreamSynchronize(consumer));
  REQUIRE(counter == 1);
  float ms = 0;
  CU(cuEventElapsedTime(&ms, start, ready));
  REQUIRE(ms >= 15);
}

// What a real driver need not do: its host functions may run one after the other. Kernels that wait for
// each other across branches need it here.
TEST_CASE("forked branches of a graph run side by side") {
  Gpu gpu(0);
  TestStream stream, side;
  TestEvent fork, join;
  struct Meeting {
    std::atomic<int> arrived{0}, missed{0};
  } meeting;
  const auto meet = [](void* both) {
    auto& m = *static_cast<Meeting*>(both);
    const int target = (m.arrived.fetch_add(1) / 2 + 1) * 2;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (m.missed == 0 && m.arrived < target) {
      if (std::chrono::steady_clock::now() > deadline) ++m.missed;
      std::this_thread::yield();
    }
  };
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuEventRecord(fork, stream));
  CU(cuStreamWaitEvent(side, fork, 0));
  CU(cuLaunchHostFunc(stream, meet, &meeting));
  CU(cuLaunchHostFunc(side, meet, &meeting));
  CU(cuEventRecord(join, side));
  CU(cuStreamWaitEvent(stream, join, 0));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphInstantiate(&exec, graph, 0));
  CU(cuGraphDestroy(graph));
  for (int i = 0; i < 20; ++i) CU(cuGraphLaunch(exec, i % 2 == 0 ? stream : side));
  finish(stream);
  finish(side);
  CHECK(meeting.missed == 0);
  CHECK(meeting.arrived == 40);
  CU(cuGraphExecDestroy(exec));
}

TEST_CASE("a destroyed stream finishes its work") {
  Gpu gpu(0);
  int counter = 0;
  Gate gate;
  TestEvent end;
  {
    TestStream stream;
    gate.block(stream);
    CU(cuLaunchHostFunc(stream, add_one, &counter));
    CU(cuEventRecord(end, stream));
  }
  gate.release();
  CU(cuEventSynchronize(end));
  REQUIRE(counter == 1);
}

TEST_CASE("old and new names are found by look-up") {
  CU(cuInit(0));
  void *found = nullptr, *old = nullptr;
  CUdriverProcAddressQueryResult status;
  CU(cuGetProcAddress("cuMemAlloc", &found, 13000, 0, &status));
  CU(cuGetProcAddress("cuMemAlloc_v2", &old, 13000, 0, &status));
  REQUIRE(found == old);
  CU(cuGetProcAddress("cuStreamGetCaptureInfo", &found, 13000, 0, &status));
  REQUIRE(found == reinterpret_cast<void*>(&cuStreamGetCaptureInfo_v3));
  REQUIRE(cuGetProcAddress("cuNothing", &found, 13000, 0, &status) == CUDA_ERROR_NOT_FOUND);
}

TEST_CASE("a reset ends a context, whoever has retained it, and the next one is another") {
  CU(cuInit(0));
  CUcontext context = nullptr, again = nullptr, popped = nullptr;
  CU(cuDevicePrimaryCtxRetain(&context, 5));
  CU(cuDevicePrimaryCtxRetain(&context, 5));
  CU(cuCtxPushCurrent(context));
  size_t free_before = 0, free_after = 0, total = 0;
  CU(cuMemGetInfo(&free_before, &total));
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 1 << 20));
  unsigned long long first = 0, second = 0;
  CU(cuCtxGetId(context, &first));
  CU(cuDevicePrimaryCtxReset(5));
  REQUIRE(cuCtxGetId(context, &second) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  unsigned flags = 0;
  int active = 1;
  CU(cuDevicePrimaryCtxGetState(5, &flags, &active));
  REQUIRE(active == 0);
  CU(cuDevicePrimaryCtxRetain(&again, 5));
  CU(cuCtxGetId(again, &second));
  REQUIRE(second != first);
  CU(cuMemGetInfo(&free_after, &total));
  REQUIRE(free_after == free_before);
  CU(cuCtxPopCurrent(&popped));
  CU(cuDevicePrimaryCtxRelease(5));
}
