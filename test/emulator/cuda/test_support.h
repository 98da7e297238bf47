// What the emulator's own tests share: RAII for the handles of the driver, and child processes.
#pragma once

#include <cuda.h>
#include <sys/types.h>

#include <atomic>
#include <string>
#include <vector>

#include "test/catch.h"

#define CU(call) REQUIRE((call) == CUDA_SUCCESS)

namespace emu_test {

// The primary context of `device`, current while this lives.
class Gpu {
 public:
  explicit Gpu(int device);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  CUcontext context = nullptr;

 private:
  CUdevice device_ = 0;
};

struct TestStream {
  explicit TestStream(unsigned flags = CU_STREAM_NON_BLOCKING) {
    CU(cuStreamCreate(&handle, flags));
  }
  ~TestStream() { cuStreamDestroy(handle); }
  operator CUstream() const { return handle; }
  CUstream handle = nullptr;
};

struct TestEvent {
  TestEvent() { CU(cuEventCreate(&handle, CU_EVENT_DEFAULT)); }
  ~TestEvent() { cuEventDestroy(handle); }
  operator CUevent() const { return handle; }
  CUevent handle = nullptr;
};

struct TestMemory {
  explicit TestMemory(size_t bytes) { CU(cuMemAlloc(&address, bytes)); }
  ~TestMemory() { cuMemFree(address); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(address);
  }
  CUdeviceptr address = 0;
};

// Waits until the stream's work has ended well; FAILs if it has not in 20 seconds.
void finish(CUstream stream);

// Holds a stream back until release(), or for a minute.
class Gate {
 public:
  void block(CUstream stream);
  void release() { open_.store(true); }
  ~Gate() { release(); }

 private:
  std::atomic<bool> open_{false};
};

// Runs one test case of this program as a process of its own with more environment ("NAME=VALUE"),
// since the emulator reads its settings once. Returns how it ended: exit status, or 128 + signal.
struct Outcome {
  int status;
  std::string output;  // stdout and stderr
};
Outcome run_case(const std::string& test_case, const std::vector<std::string>& environment = {});

// The same, without waiting for the end.
class Child {
 public:
  Child(const std::string& test_case, const std::vector<std::string>& environment);
  ~Child();  // kills
  Outcome wait();
  void write(const void* data, size_t bytes);  // to its standard input
  void read(void* data, size_t bytes);         // from its standard output
  void kill();

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
};

}  // namespace emu_test
