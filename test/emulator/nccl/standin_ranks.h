// Ranks as processes, for the stand-in's own tests: fork before anything touches CUDA, run,
// collect.
#pragma once

#include <cuda.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace standin_test {

// In a rank: throws with the place and the text of the condition.
inline void ensure(bool holds, const char* text, int line) {
  if (!holds) throw std::runtime_error("line " + std::to_string(line) + ": " + text);
}
#define ENSURE(...) ::standin_test::ensure((__VA_ARGS__), #__VA_ARGS__, __LINE__)
#define NCCL_OK(...) ENSURE((__VA_ARGS__) == ncclSuccess)
#define CU_OK(...) ENSURE((__VA_ARGS__) == CUDA_SUCCESS)

// What the ranks of one test share.
struct Shared {
  ncclUniqueId id;
  std::atomic<uint32_t> id_ready;
  std::atomic<uint32_t> flags[8];  // a test's own signals

  void wait_for(int flag, uint32_t value) const {
    while (flags[flag].load() < value) std::this_thread::yield();
  }
};

struct Rank {
  int rank;
  int ranks;
  Shared& shared;
};

inline void use_device(int device) {
  CUcontext context;
  CU_OK(cuInit(0));
  CU_OK(cuDevicePrimaryCtxRetain(&context, device));
  CU_OK(cuCtxSetCurrent(context));
}

// Makes the communicator of all ranks, rank r on device r.
inline ncclComm_t make_world(const Rank& r) {
  use_device(r.rank);
  if (r.rank == 0) {
    NCCL_OK(ncclGetUniqueId(&r.shared.id));
    r.shared.id_ready.store(1);
  }
  while (r.shared.id_ready.load() == 0) std::this_thread::yield();
  ncclComm_t comm = nullptr;
  NCCL_OK(ncclCommInitRank(&comm, r.ranks, r.shared.id, r.rank));
  return comm;
}

struct Stream {
  CUstream handle = nullptr;
  Stream() { CU_OK(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING)); }
  ~Stream() { cuStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  operator CUstream() const { return handle; }
  void wait() { CU_OK(cuStreamSynchronize(handle)); }
};

template <typename T>
class Buffer {
 public:
  explicit Buffer(size_t count, T value = {}) : count_(count) {
    CU_OK(cuMemAlloc(&address_, std::max<size_t>(count, 1) * sizeof(T)));
    set(std::vector<T>(count, value));
  }
  ~Buffer() { cuMemFree(address_); }
  Buffer(const Buffer&) = delete;

  void set(const std::vector<T>& values) {
    if (!values.empty()) CU_OK(cuMemcpyHtoD(address_, values.data(), values.size() * sizeof(T)));
  }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    if (count_) CU_OK(cuMemcpyDtoH(values.data(), address_, count_ * sizeof(T)));
    return values;
  }
  T* data() const { return reinterpret_cast<T*>(address_); }
  CUdeviceptr address() const { return address_; }
  size_t count() const { return count_; }

 private:
  CUdeviceptr address_ = 0;
  size_t count_;
};

// Exit statuses of the ranks: 0, 1 for a failed ENSURE (printed), 128 + signal. A rank that hangs
// is ended by SIGALRM. Ranks leave by _exit: Catch2's state is the parent's.
inline std::vector<int> run_ranks(int ranks, const std::function<void(const Rank&)>& body,
                                  unsigned limit_seconds = 60) {
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *new (memory) Shared{};
  std::vector<pid_t> pids;
  std::fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    if (pid != 0) {
      pids.push_back(pid);
      continue;
    }
    std::signal(SIGALRM, SIG_DFL);
    alarm(limit_seconds);
    int status = 0;
    try {
      body({rank, ranks, shared});
    } catch (const std::exception& e) {
      std::fprintf(stderr, "rank %d: %s\n", rank, e.what());
      status = 1;
    }
    std::fflush(nullptr);
    _exit(status);
  }
  std::vector<int> statuses;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  munmap(memory, sizeof(Shared));
  return statuses;
}

}  // namespace standin_test
