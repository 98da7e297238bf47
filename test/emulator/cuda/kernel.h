// One launch of a kernel: its emulated threads as fibers, run round robin by the stream's worker.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "address_map.h"
#include "faults.h"
#include "fiber.h"
#include "hostile.h"
#include "kernels/host_runtime.h"
#include "stream.h"

namespace emu {

// A launch as the API got it. Parameters are copied: a captured one keeps them for every replay.
struct Launch {
  const shunt::host::HostKernel* kernel;
  std::vector<unsigned char> params;
  uint32_t blocks;
  uint32_t threads;  // of one block
};

class KernelRun {
 public:
  KernelRun(const Launch& launch, const RunInfo& info);
  // Blocks until all threads have ended. The error of the context if it faulted meanwhile.
  CUresult run();

  // The run that the calling OS thread is in the middle of.
  static KernelRun& current();

  // ---- from inside the fibers, see host_runtime.h ----
  shunt::host::ThreadIndex index() const;
  void store_packet(void* address, Packet packet, shunt::host::Grain grain);
  Packet load_packet(const void* address);
  int barrier_or(int predicate);
  uint32_t broadcast(uint32_t value, uint32_t from);
  void pause();
  void made_progress() { progress_ = true; }
  [[noreturn]] void fault(CUresult code);

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kDone };
  struct Thread {
    Fiber fiber;
    uint32_t index;
    uint32_t block;
    uint32_t stalled = 0;  // sweeps to sit out
    State state = State::kReady;
  };
  struct Block {
    uint32_t live;
    uint32_t arrived = 0;
    uint32_t barriers = 0;  // passed
    int vote = 0;
    int outcome = 0;
    uint32_t word = 0;  // what is broadcast
  };
  struct Granted {
    uintptr_t begin;
    uintptr_t end;
    int gpu;
  };

  static void fiber_main(boost::context::detail::transfer_t from);
  void switch_out();
  void sweep();
  void shuffle_and_stall();
  void finish_thread();
  void release_barrier(Block& block);
  void rest();
  void let_peers_look();
  Thread& thread() { return threads_[running_]; }
  const Thread& thread() const { return threads_[running_]; }
  Writer writer() const;
  int gpu_of(const void* address);
  void check_buffers() const;

  const Launch& launch_;
  const RunInfo& info_;
  LaunchFaults faults_;
  std::unique_ptr<PendingStores> pending_;  // hostile mode only
  Stacks stacks_;
  std::vector<Thread> threads_;
  std::vector<Block> blocks_;
  std::vector<uint32_t> order_;
  std::vector<Granted> granted_;
  boost::context::detail::fcontext_t scheduler_ = nullptr;
  uint32_t running_ = 0;
  uint32_t live_;
  bool progress_ = false;
  uint32_t fruitless_ = 0;  // sweeps in a row without progress
};

// Runs a launch on the calling worker, with the delays that the environment asks for.
CUresult run_kernel(const Launch& launch, const RunInfo& info);

}  // namespace emu
