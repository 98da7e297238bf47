// What an eager call costs the calling thread, and which driver calls that is made of. For a quiet
// machine with two GPUs: LD_PRELOAD=<build>/lib/libnccl-shunt.so SHUNT_ENABLE=on SHUNT_CAP=128K
// host_cost
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/protocol.h"
#include "tools/worker/driver.h"
#include "tools/worker/nccl_paths.h"

namespace {

using namespace shunt::bench;

constexpr int kBursts = 41, kCalls = 100;  // a burst is less than the driver queues without waiting

// Nanoseconds of one call: median over bursts. `between` is not counted.
double nanoseconds(const std::function<void()>& call, const std::function<void()>& between) {
  std::vector<double> bursts;
  for (int burst = 0; burst < kBursts; ++burst) {
    between();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const auto end = std::chrono::steady_clock::now();
    bursts.push_back(std::chrono::duration<double, std::nano>(end - begin).count() / kCalls);
  }
  std::ranges::nth_element(bursts, bursts.begin() + kBursts / 2);
  return bursts[kBursts / 2];
}

// A kernel that does nothing, with so many bytes of arguments; null where the driver takes no PTX.
CUfunction empty_kernel(size_t bytes) {
  const std::string text =
      ".version 7.0\n.target sm_75\n.address_size 64\n"
      ".visible .entry empty(.param .align 8 .b8 p[" +
      std::to_string(bytes) + "]) { ret; }\n";
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (cuModuleLoadData(&module, text.c_str()) != CUDA_SUCCESS) return nullptr;
  SHUNT_DRIVER(cuModuleGetFunction(&function, module, "empty"));
  return function;
}

void print(const char* what, double ns) { std::printf("%-58s %8.1f ns\n", what, ns); }

void driver_calls() {
  const PrimaryContext context(0);
  context.make_current();
  const Stream owner = make_stream();
  const CUstream stream = owner.get();
  CUevent event = nullptr;
  SHUNT_DRIVER(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const Event event_owner(event);
  CUcontext current = nullptr;
  SHUNT_DRIVER(cuCtxGetCurrent(&current));
  const auto synchronize = [&] { SHUNT_DRIVER(cuStreamSynchronize(stream)); };
  const auto measure = [&](const char* what, const std::function<void()>& call) {
    print(what, nanoseconds(call, synchronize));
  };

  unsigned long long id = 0;
  cuuint64_t capture = 0;
  CUstreamCaptureStatus status{};
  CUcontext now = nullptr;
  measure("(nothing)", [] {});
  measure("cuCtxGetId", [&] { SHUNT_DRIVER(cuCtxGetId(current, &id)); });
  measure("cuCtxGetCurrent", [&] { SHUNT_DRIVER(cuCtxGetCurrent(&now)); });
  measure("cuCtxPushCurrent + cuCtxPopCurrent", [&] {
    SHUNT_DRIVER(cuCtxPushCurrent(current));
    SHUNT_DRIVER(cuCtxPopCurrent(&now));
  });
  measure("cuStreamIsCapturing", [&] { SHUNT_DRIVER(cuStreamIsCapturing(stream, &status)); });
#if CUDA_VERSION >= 13000
  const auto capture_info = [&] {
    SHUNT_DRIVER(
        cuStreamGetCaptureInfo(stream, &status, &capture, nullptr, nullptr, nullptr, nullptr));
  };
#else
  const auto capture_info = [&] {
    SHUNT_DRIVER(cuStreamGetCaptureInfo(stream, &status, &capture, nullptr, nullptr, nullptr));
  };
#endif
  measure("cuStreamGetCaptureInfo", capture_info);
  measure("cuStreamGetId", [&] { SHUNT_DRIVER(cuStreamGetId(stream, &id)); });
  measure("cuEventRecord", [&] { SHUNT_DRIVER(cuEventRecord(event, stream)); });
  measure("cuStreamWaitEvent", [&] { SHUNT_DRIVER(cuStreamWaitEvent(stream, event, 0)); });

  unsigned char arguments[sizeof(shunt::AllReduceParams)] = {};
  void* parameters[] = {arguments};
  CUfunction small = empty_kernel(64), large = empty_kernel(sizeof(arguments));
  if (small == nullptr || large == nullptr) {
    std::printf("no launches: this driver takes no PTX\n");
    return;
  }
  const auto launch = [&](CUfunction function) {
    SHUNT_DRIVER(cuLaunchKernel(function, 1, 1, 1, 96, 1, 1, 0, stream, parameters, nullptr));
  };
  measure("cuLaunchKernel, 64 bytes of arguments", [&] { launch(small); });
  measure("cuLaunchKernel, the arguments of an all-reduce", [&] { launch(large); });
  size_t bytes = sizeof(arguments);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, arguments, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  measure("cuLaunchKernel, the same as one buffer", [&] {
    SHUNT_DRIVER(cuLaunchKernel(large, 1, 1, 1, 96, 1, 1, 0, stream, nullptr, extra));
  });
  measure("cuLaunchKernel + cuEventRecord", [&] {
    launch(large);
    SHUNT_DRIVER(cuEventRecord(event, stream));
  });
  // An event as part of the launch: would it be cheaper than one recorded behind it?
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attribute.value.programmaticEvent.event = event;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 96;
  config.hStream = stream;
  config.attrs = &attribute;
  const auto launch_ex = [&](unsigned attributes) {
    config.numAttrs = attributes;
    return cuLaunchKernelEx(&config, large, parameters, nullptr);
  };
  measure("cuLaunchKernelEx", [&] { SHUNT_DRIVER(launch_ex(0)); });
  if (const CUresult result = launch_ex(1); result == CUDA_SUCCESS) {
    measure("cuLaunchKernelEx with a programmatic event", [&] { SHUNT_DRIVER(launch_ex(1)); });
  } else {
    std::printf("cuLaunchKernelEx with a programmatic event: error %d\n", result);
  }
  measure("all of a shunted call", [&] {
    SHUNT_DRIVER(cuCtxGetId(current, &id));
    SHUNT_DRIVER(cuCtxGetCurrent(&now));
    capture_info();
    SHUNT_DRIVER(cuStreamGetId(stream, &id));
    launch(large);
    SHUNT_DRIVER(cuEventRecord(event, stream));
  });
}

// Both ranks, a thread each; the first one's figures are printed.
void all_reduces() {
  ncclUniqueId unique;
  SHUNT_NCCL(ncclGetUniqueId(&unique));
  std::barrier meet(2);
  const auto rank = [&](int number) {
    const PrimaryContext context(static_cast<uint32_t>(number));
    context.make_current();
    const Stream owner = make_stream();
    const CUstream stream = owner.get();
    constexpr uint64_t kMost = 1 << 20;
    const DeviceMemory send = allocate(kMost), receive = allocate(kMost);
    ncclComm_t comm = nullptr;
    SHUNT_NCCL(ncclCommInitRank(&comm, 2, unique, number));
    const auto measure = [&](const char* what, Path path, uint64_t bytes) {
      const double ns = nanoseconds(
          [&] {
            SHUNT_NCCL(all_reduce(path, reinterpret_cast<const void*>(send.get()),
                                  reinterpret_cast<void*>(receive.get()), bytes / 2, ncclBfloat16,
                                  ncclSum, comm, reinterpret_cast<cudaStream_t>(stream)));
          },
          [&] {
            SHUNT_DRIVER(cuStreamSynchronize(stream));
            meet.arrive_and_wait();
          });
      SHUNT_DRIVER(cuStreamSynchronize(stream));
      if (number == 0) print(what, ns);
    };
    measure("(the first calls of NCCL)", Path::kNccl, 4096);
    measure("NCCL, 4 KiB", Path::kNccl, 4096);
    measure("library, 4 KiB", Path::kShunt, 4096);
    measure("NCCL, 1 MiB", Path::kNccl, kMost);
    measure("library, 1 MiB", Path::kShunt, kMost);
    measure("NCCL, 1 MiB, again", Path::kNccl, kMost);
    meet.arrive_and_wait();
    SHUNT_NCCL(ncclCommDestroy(comm));
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
}

}  // namespace

int main() {
  try {
    SHUNT_DRIVER(cuInit(0));
    std::printf("ncclAllReduce of %s\n", public_provider().c_str());
    driver_calls();
    all_reduces();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "host_cost: %s\n", error.what());
    return 1;
  }
  return 0;
}
