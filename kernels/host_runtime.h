// What the kernel needs from whoever runs it on a host: the emulated driver and the protocol simulation
// each provide these. Every emulated thread is a fiber; none of these functions may block the OS thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::host {

struct ThreadIndex {
  uint32_t thread;     // threadIdx.x
  uint32_t block;      // blockIdx.x
  uint32_t block_dim;  // blockDim.x
};
ThreadIndex thread_index();

// The grain is what the protocol relies on: words of this many bytes do not tear, and arrive in any order.
enum class Grain : uint32_t { k4 = 4, k8 = 8 };

// One 16-byte store to a mailbox of a peer (`remote`) or of this rank. May be delayed and split at
// `grain`; a later load of the same address by the same thread sees it.
void store_packet(void* address, uint64_t low, uint64_t high, Grain grain, bool remote);
// One 16-byte load of a mailbox packet.
void load_packet(const void* address, uint64_t* low, uint64_t* high);

// Words that host and device, or kernels of one rank, share.
uint32_t load_word(const uint32_t* address);
void store_word(uint32_t* address, uint32_t value);
uint32_t exchange_word(uint32_t* address, uint32_t value);
uint32_t add_word(uint32_t* address, uint32_t value);  // returns what was there

// __syncthreads_or.
int barrier_or(int predicate);
// `value` of thread `from` of the block, to all its threads; a block barrier too. The others pass 0.
uint32_t broadcast(uint32_t value, uint32_t from);
// Called once after every unsuccessful poll: lets other fibers run.
void pause();
// Nanoseconds, monotonic.
uint64_t clock_ns();
// __trap: the kernel and its context end with an error.
[[noreturn]] void trap();

// ---- the kernels that can be launched by name ----
struct HostKernel {
  const char* name;
  void (*body)(const void* params);  // runs one emulated thread
  size_t params_bytes;
};
// nullptr: no such kernel.
const HostKernel* find_kernel(const char* name);

}  // namespace shunt::host
