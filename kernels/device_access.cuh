// The machine under the kernel: packet stores and loads, words, barrier, clock. On a GPU these are single
// instructions; on a host (emulated driver, protocol simulation) they are calls of host_runtime.h.
#pragma once

#include <cstdint>

#include "kernels/protocol.h"

#ifdef __CUDACC__
#define SHUNT_DEVICE __device__ __forceinline__
#define SHUNT_UNROLL _Pragma("unroll")
#else
#include "kernels/host_runtime.h"
#define SHUNT_DEVICE inline
#define SHUNT_UNROLL
#endif

namespace shunt {

// 16 bytes in registers. Word i is the i-th 4-byte word in memory order.
struct Packet {
  uint64_t low;
  uint64_t high;
};

// The unit that must not tear and of which each may arrive alone.
enum class Word : uint32_t { k4 = 4, k8 = 8 };

namespace device {

#ifdef __CUDACC__

SHUNT_DEVICE uint32_t thread() { return threadIdx.x; }
SHUNT_DEVICE uint32_t block() { return blockIdx.x; }
SHUNT_DEVICE uint32_t block_dim() { return blockDim.x; }

// Volatile: never cached in L1, never merged or split, 8-byte elements do not tear (PTX ISA, "Vector
// data types" and "Scalar atomicity"). No fence anywhere: each word says by itself that it has arrived.
template <Word kWord>
SHUNT_DEVICE void store(void* address, Packet p, bool /*remote*/) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(address), "l"(p.low), "l"(p.high)
               : "memory");
}
SHUNT_DEVICE Packet load(const void* address) {
  Packet p;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(p.low), "=l"(p.high)
               : "l"(address)
               : "memory");
  return p;
}
SHUNT_DEVICE uint32_t load_word(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
SHUNT_DEVICE void store_word(uint32_t* address, uint32_t value) {
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
SHUNT_DEVICE uint32_t exchange_word(uint32_t* address, uint32_t value) {
  return atomicExch(address, value);
}
SHUNT_DEVICE int barrier_or(int predicate) { return __syncthreads_or(predicate); }
SHUNT_DEVICE void pause() {}
SHUNT_DEVICE void sleep_ns(uint32_t ns) { __nanosleep(ns); }
SHUNT_DEVICE uint64_t clock_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
// What was written for the host must be there before the context dies.
SHUNT_DEVICE void trap() {
  __threadfence_system();
  __trap();
}

#else

SHUNT_DEVICE uint32_t thread() { return host::thread_index().thread; }
SHUNT_DEVICE uint32_t block() { return host::thread_index().block; }
SHUNT_DEVICE uint32_t block_dim() { return host::thread_index().block_dim; }
template <Word kWord>
SHUNT_DEVICE void store(void* address, Packet p, bool remote) {
  host::store_packet(address, p.low, p.high, kWord == Word::k8 ? host::Grain::k8 : host::Grain::k4,
                     remote);
}
SHUNT_DEVICE Packet load(const void* address) {
  Packet p;
  host::load_packet(address, &p.low, &p.high);
  return p;
}
SHUNT_DEVICE uint32_t load_word(const uint32_t* address) { return host::load_word(address); }
SHUNT_DEVICE void store_word(uint32_t* address, uint32_t value) {
  host::store_word(address, value);
}
SHUNT_DEVICE uint32_t exchange_word(uint32_t* address, uint32_t value) {
  return host::exchange_word(address, value);
}
SHUNT_DEVICE int barrier_or(int predicate) { return host::barrier_or(predicate); }
SHUNT_DEVICE void pause() { host::pause(); }
SHUNT_DEVICE void sleep_ns(uint32_t) {}
SHUNT_DEVICE uint64_t clock_ns() { return host::clock_ns(); }
SHUNT_DEVICE void trap() { host::trap(); }

#endif

}  // namespace device
}  // namespace shunt
