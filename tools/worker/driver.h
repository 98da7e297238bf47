// Owners of CUDA driver objects, and errors as exceptions. The CUDA runtime is not used, so that
// the same program runs on the emulated driver. Every object belongs to the context that was
// current when it was made, and that context must be current when it is used and destroyed.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace shunt::bench {

class DriverError : public std::runtime_error {
 public:
  DriverError(CUresult code, const char* call);
};

inline void driver_check(CUresult code, const char* call) {
  if (code != CUDA_SUCCESS) throw DriverError(code, call);
}
#define SHUNT_DRIVER(call) ::shunt::bench::driver_check((call), #call)

// A handle that is released once. Failures of the release are ignored: they repeat what was thrown
// before.
template <typename Handle, auto release>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle{}) release(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_{};
};

using Stream = Owned<CUstream, &cuStreamDestroy>;
using Event = Owned<CUevent, &cuEventDestroy>;
using GraphExec = Owned<CUgraphExec, &cuGraphExecDestroy>;
using Graph = Owned<CUgraph, &cuGraphDestroy>;
using DeviceMemory = Owned<CUdeviceptr, &cuMemFree>;

Stream make_stream();
Event make_event();
DeviceMemory allocate(uint64_t bytes);
GraphExec instantiate(Graph graph);

// Retains the primary context of a device, as the CUDA runtime inside NCCL does.
class PrimaryContext {
 public:
  explicit PrimaryContext(uint32_t ordinal);
  PrimaryContext(PrimaryContext&& other) noexcept;
  PrimaryContext& operator=(PrimaryContext&&) = delete;
  ~PrimaryContext();
  void make_current() const;

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

struct DriverFacts {
  int cuda_version = 0;        // of the driver, 13000 for CUDA 13.0
  std::string driver_version;  // NVML's, "580.95.05"; empty where there is no NVML
};
DriverFacts driver_facts();
std::string device_name(uint32_t ordinal);

}  // namespace shunt::bench
