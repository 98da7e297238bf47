// One rank of a job (see job.h): driver API and ncclX only, so that the same programs run on the emulated
// driver and on GPUs. Every wait has a deadline.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "test/cases/shared.h"

namespace cases {

inline void ensure(bool holds, const char* text, const char* file, int line) {
  if (!holds) throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + text);
}
inline void ensure_zero(int result, const char* text, const char* file, int line) {
  ensure(result == 0, (std::string(text) + " gave " + std::to_string(result)).c_str(), file, line);
}
#define ENSURE(...) ::cases::ensure(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define CU(...) ::cases::ensure_zero(static_cast<int>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)
#define NCCL(...) ::cases::ensure_zero(static_cast<int>(__VA_ARGS__), #__VA_ARGS__, __FILE__, __LINE__)

using Bytes = std::vector<unsigned char>;

// A number that the job was given in its environment; throws if there is none.
int number_of(const char* variable);

// What the launcher told this process.
struct Rank {
  // The primary context of `device` is made current; -1: the device with the rank's number; -2: none.
  explicit Rank(int device = -1);
  void use_device(int device);
  // The id of communicator `slot`; rank 0 makes it.
  ncclUniqueId unique_id(int slot) const;
  // A communicator of the first `ranks_of_it` ranks; 0: of all.
  ncclComm_t connect(int slot = 0, int ranks_of_it = 0, ncclConfig_t* config = nullptr) const;
  void barrier(double seconds = 60) const;
  void set(int flag, uint32_t value = 1) const { shared.flags[flag].store(value); }
  void wait_for(int flag, uint32_t value = 1, double seconds = 60) const;  // until it is at least `value`

  const int rank;
  const int ranks;
  Shared& shared;
  CUcontext context = nullptr;
};

class Stream {
 public:
  Stream() { CU(cuStreamCreate(&handle_, CU_STREAM_NON_BLOCKING)); }
  ~Stream() { cuStreamDestroy(handle_); }
  Stream(const Stream&) = delete;
  operator CUstream() const { return handle_; }
  // How its work ended; CUDA_ERROR_NOT_READY if it has not after `seconds`.
  CUresult end(double seconds = 60) const;
  void wait(double seconds = 60) const { CU(end(seconds)); }

 private:
  CUstream handle_ = nullptr;
};

class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_(bytes) { CU(cuMemAlloc(&address_, bytes == 0 ? 1 : bytes)); }
  ~Memory() { cuMemFree(address_); }
  Memory(const Memory&) = delete;
  void put(const Bytes& data, size_t offset = 0) const;
  Bytes get(size_t bytes, size_t offset = 0) const;
  void fill(unsigned char byte) const;
  CUdeviceptr address() const { return address_; }
  void* at(size_t offset = 0) const { return reinterpret_cast<void*>(address_ + offset); }
  size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_;
};

class Graph {
 public:
  Graph(const Stream& stream, const std::function<void()>& work,
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL);
  ~Graph() { cuGraphExecDestroy(exec_); }
  Graph(const Graph&) = delete;
  void launch(const Stream& stream) const { CU(cuGraphLaunch(exec_, stream)); }

 private:
  CUgraphExec exec_ = nullptr;
};

// The end of a rank whose results were right: says so, waits for the others, destroys.
void done(const Rank& rank, std::initializer_list<ncclComm_t> comms);

// fp32 inputs whose sum over up to 16 ranks is exact in any order.
float exact_input(int rank, size_t i, uint32_t round);
std::vector<float> exact_inputs(int rank, size_t count, uint32_t round);
std::vector<float> exact_sums(int ranks, size_t count, uint32_t round);
Bytes as_bytes(const std::vector<float>& values);

// One fp32 all-reduce of exact inputs into a poisoned buffer; how many elements are wrong.
size_t all_reduce_once(const Rank& rank, ncclComm_t comm, const Stream& stream, size_t count,
                       uint32_t round);

}  // namespace cases
