// kernels/host_runtime.h for kernels that the emulated driver runs.
#include "kernels/host_runtime.h"

#include "kernel.h"
#include "work.h"

namespace shunt::host {

ThreadIndex thread_index() { return emu::KernelRun::current().index(); }

void store_packet(void* address, uint64_t low, uint64_t high, Grain grain, bool /*remote*/) {
  emu::KernelRun::current().store_packet(address, {low, high}, grain);
}

void load_packet(const void* address, uint64_t* low, uint64_t* high) {
  const emu::Packet packet = emu::KernelRun::current().load_packet(address);
  *low = packet.low;
  *high = packet.high;
}

uint32_t load_word(const uint32_t* address) { return __atomic_load_n(address, __ATOMIC_RELAXED); }

void store_word(uint32_t* address, uint32_t value) {
  emu::KernelRun::current().made_progress();
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

uint32_t exchange_word(uint32_t* address, uint32_t value) {
  emu::KernelRun::current().made_progress();
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}

uint32_t add_word(uint32_t* address, uint32_t value) {
  emu::KernelRun::current().made_progress();
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

int barrier_or(int predicate) { return emu::KernelRun::current().barrier_or(predicate); }

uint32_t broadcast(uint32_t value, uint32_t from) { return emu::KernelRun::current().broadcast(value, from); }

void pause() { emu::KernelRun::current().pause(); }

uint64_t clock_ns() { return emu::now_ns(); }

void trap() { emu::KernelRun::current().fault(CUDA_ERROR_LAUNCH_FAILED); }

}  // namespace shunt::host
