// Several processes: IPC, visibility, fork, misuse lines, the trace.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "test_rank.h"

using namespace emu_test;

namespace {

constexpr unsigned kLazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
constexpr size_t kBytes = 4096;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

void write_all(const void* data, size_t bytes) {
  REQUIRE(::write(1, data, bytes) == static_cast<ssize_t>(bytes));
}

}  // namespace

// Exports memory of GPU 1 to its parent and waits to be told to end.
TEST_CASE("case: exporter", "[.]") {
  Gpu gpu(1);
  TestMemory memory(kBytes);
  std::strcpy(memory.as<char>(), "from the child");
  CUipcMemHandle handle;
  CU(cuIpcGetMemHandle(&handle, memory.address + 5));  // names the whole allocation
  write_all("\1", 1);
  write_all(&handle, sizeof(handle));
  char order = 0;
  while (::read(0, &order, 1) == 1 && order != 'q') {
    write_all(memory.as<char>(), 16);
  }
}

TEST_CASE("memory is shared with another process and outlives it") {
  Gpu gpu(0);
  Child child("case: exporter", {});
  CUipcMemHandle handle;
  char marker = 0;
  while (marker != 1) child.read(&marker, 1);  // Catch2 may print before
  child.read(&handle, sizeof(handle));
  CUdeviceptr address = 0, again = 0;
  CU(cuIpcOpenMemHandle(&address, handle, kLazy));
  CU(cuIpcOpenMemHandle(&again, handle, kLazy));
  REQUIRE(again == address);  // counted
  char* shared = reinterpret_cast<char*>(address);
  REQUIRE(std::string(shared) == "from the child");
  std::strcpy(shared, "from the parent");
  char back[16];
  child.write("r", 1);
  child.read(back, sizeof(back));
  REQUIRE(std::string(back) == "from the parent");
  child.kill();
  child.wait();
  REQUIRE(std::string(shared) == "from the parent");
  CU(cuIpcCloseMemHandle(address));
  CU(cuIpcCloseMemHandle(again));
  REQUIRE(cuIpcCloseMemHandle(again) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuIpcOpenMemHandle(&address, handle, kLazy) == CUDA_ERROR_INVALID_HANDLE);
}

// One rank of four, each a process: its handle goes to the parent, everybody's come back.
TEST_CASE("case: rank", "[.]") {
  constexpr int kRanks = 4;
  const int number = std::atoi(std::getenv("EMU_TEST_RANK"));
  Rank rank(number, kRanks);
  CUipcMemHandle handles[kRanks];
  CU(cuIpcGetMemHandle(&handles[0], reinterpret_cast<CUdeviceptr>(rank.slab())));
  write_all("\1", 1);
  write_all(&handles[0], sizeof(handles[0]));
  REQUIRE(::read(0, handles, sizeof(handles)) == sizeof(handles));
  for (int peer = 0; peer < kRanks; ++peer) {
    if (peer == number) continue;
    CUdeviceptr address = 0;
    CU(cuIpcOpenMemHandle(&address, handles[peer], kLazy));
    rank.connect(peer, reinterpret_cast<void*>(address));
  }
  for (int call = 0; call < 300; ++call) {
    const size_t count = call % 50 == 0 ? 4000 : static_cast<size_t>(call);
    rank.fill(static_cast<float>(number + call));
    rank.launch(rank.stream(), count);
    CU(cuStreamSynchronize(rank.stream()));
    for (size_t i = 0; i < count; ++i) {
      REQUIRE(rank.received()[i] == static_cast<float>(4 * call + 6));
    }
  }
}

void run_four_ranks(const std::string& variable) {
  std::vector<std::unique_ptr<Child>> children;
  CUipcMemHandle handles[4];
  for (int rank = 0; rank < 4; ++rank) {
    children.push_back(std::make_unique<Child>(
        "case: rank", std::vector<std::string>{"EMU_TEST_RANK=" + std::to_string(rank), variable}));
    char marker = 0;
    while (marker != 1) children.back()->read(&marker, 1);
    children.back()->read(&handles[rank], sizeof(handles[rank]));
  }
  for (const auto& child : children) child->write(handles, sizeof(handles));
  for (const auto& child : children) {
    const Outcome outcome = child->wait();
    INFO(outcome.output);
    CHECK(outcome.status == 0);
  }
}

TEST_CASE("kernels of four processes meet") { run_four_ranks("EMU_HOSTILE=0"); }
TEST_CASE("kernels of four processes meet under hostile delivery") {
  run_four_ranks("EMU_HOSTILE=3");
}

TEST_CASE("a process cannot open its own handle") {
  Gpu gpu(0);
  TestMemory memory(kBytes);
  CUipcMemHandle handle;
  CU(cuIpcGetMemHandle(&handle, memory.address));
  CUdeviceptr address = 0;
  REQUIRE(cuIpcOpenMemHandle(&address, handle, kLazy) == CUDA_ERROR_INVALID_CONTEXT);
  std::memset(&handle, 0x11, sizeof(handle));
  REQUIRE(cuIpcOpenMemHandle(&address, handle, kLazy) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("nothing is left in /dev/shm") {
  const auto entries = [] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      names.insert(entry.path());
    return names;
  };
  const auto before = entries();
  Child child("case: exporter", {});
  CUipcMemHandle handle;
  child.read(&handle, 1);
  child.kill();
  child.wait();
  for (const std::string& name : entries()) {
    INFO(name);
    CHECK((before.count(name) == 1 || name.find("emulated") == std::string::npos));
  }
}

TEST_CASE("case: ipc refused", "[.]") {
  Gpu gpu(2);
  CUipcMemHandle handle{};
  CUdeviceptr address = 0;
  REQUIRE(cuIpcOpenMemHandle(&address, handle, kLazy) == CUDA_ERROR_MAP_FAILED);
}

TEST_CASE("case: two visible", "[.]") {
  CU(cuInit(0));
  int count = 0;
  CU(cuDeviceGetCount(&count));
  REQUIRE(count == 2);
  char first[16], second[16];
  CU(cuDeviceGetPCIBusId(first, sizeof(first), 0));
  CU(cuDeviceGetPCIBusId(second, sizeof(second), 1));
  REQUIRE(std::string(first) == "0000:2e:00.0");   // GPU 3
  REQUIRE(std::string(second) == "0000:1a:00.0");  // GPU 1
}

TEST_CASE("case: none visible", "[.]") { REQUIRE(cuInit(0) == CUDA_ERROR_NO_DEVICE); }

TEST_CASE("CUDA_VISIBLE_DEVICES takes numbers and UUIDs") {
  CU(cuInit(0));
  CUuuid uuid{};
  CU(cuDeviceGetUuid(&uuid, 3));
  char text[16];
  std::snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x", uuid.bytes[0] & 0xff,
                uuid.bytes[1] & 0xff, uuid.bytes[2] & 0xff, uuid.bytes[3] & 0xff);
  CHECK(run_case("case: two visible", {"CUDA_VISIBLE_DEVICES=3,1"}).status == 0);
  CHECK(run_case("case: two visible", {"CUDA_VISIBLE_DEVICES=" + std::string(text) + ",1,-1,2"})
            .status == 0);
  CHECK(run_case("case: none visible", {"CUDA_VISIBLE_DEVICES="}).status == 0);
  CHECK(run_case("case: none visible", {"CUDA_VISIBLE_DEVICES=1,1"}).status == 0);
  CHECK(run_case("case: ipc refused", {"EMU_IPC_FAIL=2"}).status == 0);
}

TEST_CASE("a forked child has no driver, a child of an untouched parent has one") {
  CU(cuInit(0));
  const pid_t child = fork();
  if (child == 0) _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

TEST_CASE("case: misuse", "[.]") {
  Gpu gpu(0);
  CUstream stream = nullptr;
  CU(cuStreamCreate(&stream, 0));
  CU(cuStreamDestroy(stream));
  REQUIRE(cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_HANDLE);
  CUdeviceptr memory = 0;
  CU(cuMemAlloc(&memory, 100));
  CU(cuMemFree(memory));
  REQUIRE(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuMemsetD8(memory, 0, 1) == CUDA_ERROR_INVALID_VALUE);
  TestStream live;
  CU(cuLaunchHostFunc(
      live, [](void*) { cuCtxSynchronize(); }, nullptr));
  CU(cuStreamSynchronize(live));
}

TEST_CASE("misuse is counted and calls are traced") {
  const std::string file =
      std::filesystem::temp_directory_path() / ("emu-trace-" + std::to_string(getpid()));
  const Outcome outcome = run_case("case: misuse", {"EMU_TRACE=" + file});
  INFO(outcome.output);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.output, ContainsSubstring("emulated cuda: 4 misuses"));
  std::stringstream trace;
  trace << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  CHECK(count_of(trace.str(), " cuMemFree_v2 = ") == 2);
  CHECK(count_of(trace.str(), " cuMemAlloc_v2 = 0\n") == 1);
  CHECK(count_of(trace.str(), " cuStreamSynchronize = 400\n") == 1);
}
