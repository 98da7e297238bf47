// Devices as this process sees them and their primary contexts, the only ones there are.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "machine.h"
#include "stream.h"

namespace emu {

struct Context {
  Context(int ordinal_, int gpu_) : ordinal(ordinal_), gpu(gpu_) {}

  const int ordinal;  // CUdevice
  const int gpu;      // physical number
  std::atomic<size_t> used{0};
  std::atomic<int> kernels{0};  // that run now

  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }

  // A fault of a kernel ends the context for good: every later call that needs it says so.
  CUresult sticky() const { return static_cast<CUresult>(sticky_.load()); }
  void fault(CUresult code);

  bool retained() const { return retained_ > 0; }
  void retain();
  void release();
  void reset();  // whoever has retained it
  unsigned long long id() const { return id_; }  // of this life

  bool has_peer(int peer_gpu) const;
  void enable_peer(int peer_gpu);

  // Streams that may have unfinished work, destroyed ones too.
  void add_stream(const StreamPtr& stream);
  std::vector<StreamPtr> streams() const;
  StreamPtr legacy_stream();
  // Blocks until nothing is queued or running. May not be called with the driver's lock.
  void wait_idle();

 private:
  std::atomic<int> sticky_{CUDA_SUCCESS};
  void clear();

  std::atomic<int> retained_{0};
  std::atomic<unsigned long long> id_{0};
  mutable std::mutex mutex_;
  std::set<int> peers_;
  std::vector<StreamPtr> streams_;
  StreamPtr legacy_;
};

// Throws CUDA_ERROR_INVALID_DEVICE.
Context& context_of_device(CUdevice device);
// Null for a null handle; throws for what is no context.
Context* context_of_handle(CUcontext handle);

// The calling thread's stack of current contexts.
std::vector<Context*>& context_stack();
// The current context; throws if there is none, if it is gone or if it has faulted.
Context& current_context();

}  // namespace emu
