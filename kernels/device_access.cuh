// The machine under the kernel: packet stores and loads, words, barrier, clock. On a GPU these are single
// instructions; on a host (emulated driver, protocol simulation) they are calls of host_runtime.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/protocol.h"

#ifdef __CUDACC__
#define SHUNT_DEVICE __device__ __forceinline__
#define SHUNT_COLD static __device__ __noinline__
#define SHUNT_COLD_MEMBER __device__ __noinline__
#define SHUNT_UNROLL _Pragma("unroll")
#define SHUNT_ONE_BY_ONE _Pragma("unroll 1")
#else
#include "kernels/host_runtime.h"
#define SHUNT_DEVICE inline
#define SHUNT_COLD inline
#define SHUNT_COLD_MEMBER inline
#define SHUNT_UNROLL
#define SHUNT_ONE_BY_ONE
#endif
#define SHUNT_LIKELY(condition) __builtin_expect((condition), 1)

namespace shunt {

// 16 bytes in registers, in memory order.
struct Packet {
  uint32_t w[4];
};
constexpr uint64_t join(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }
constexpr Packet packet_of(uint64_t low, uint64_t high) {
  return {{static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
           static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)}};
}

// The unit that must not tear and of which each may arrive alone.
enum class Word : uint32_t { k4 = 4, k8 = 8 };

namespace device {

#ifdef __CUDACC__

// a + b and b + a are the same bits, NaNs too: a GPU has one NaN to give, a CPU keeps an operand's.
inline constexpr bool kSumsCommute = true;

SHUNT_DEVICE uint32_t thread() { return threadIdx.x; }
SHUNT_DEVICE uint32_t block() { return blockIdx.x; }
SHUNT_DEVICE uint32_t block_dim() { return blockDim.x; }

// Volatile: never cached in L1, never merged or split, 8-byte elements do not tear (PTX ISA, "Vector
// data types" and "Scalar atomicity"). No fence anywhere: each word says by itself that it has arrived.
SHUNT_DEVICE void store(void* address, Packet p, Word /*whole*/, bool /*remote*/) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(address), "l"(join(p.w[0], p.w[1])),
               "l"(join(p.w[2], p.w[3]))
               : "memory");
}
SHUNT_DEVICE Packet load(const void* address) {
  uint64_t low, high;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high)
               : "l"(address)
               : "memory");
  return packet_of(low, high);
}
// The user's memory: ordinary accesses, aligned to their size.
SHUNT_DEVICE Packet load_user16(uintptr_t address) {
  Packet p;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.w[0]), "=r"(p.w[1]), "=r"(p.w[2]), "=r"(p.w[3])
               : "l"(address));
  return p;
}
SHUNT_DEVICE void store_user16(uintptr_t address, Packet p) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(p.w[0]), "r"(p.w[1]),
               "r"(p.w[2]), "r"(p.w[3])
               : "memory");
}
SHUNT_DEVICE uint64_t load_user8(uintptr_t address) {
  uint64_t value;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(address));
  return value;
}
SHUNT_DEVICE void store_user8(uintptr_t address, uint64_t value) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(address), "l"(value) : "memory");
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
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}
SHUNT_DEVICE uint32_t add_word(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}
// What the threads of a block share: a value and a flag.
__shared__ uint32_t block_words[2];
// `value` of thread `from` of the block, to all its threads; a block barrier.
SHUNT_DEVICE uint32_t broadcast(uint32_t value, uint32_t from) {
  if (threadIdx.x == from) {
    block_words[0] = value;
    block_words[1] = 0;
  }
  __syncthreads();
  return block_words[0];
}
// A block barrier, once after broadcast(): whether the predicate holds for any of its threads. Not
// __syncthreads_or: its result comes later, and only the header warp looks at it.
SHUNT_DEVICE bool barrier_any(bool predicate) {
  if (predicate) block_words[1] = 1;
  __syncthreads();
  return block_words[1] != 0;
}
// Computes `value` here and not later.
SHUNT_DEVICE void settle(uint32_t& value) { asm volatile("" : "+r"(value)); }
SHUNT_DEVICE void settle(uintptr_t& value) { asm volatile("" : "+l"(value)); }
template <typename T>
SHUNT_DEVICE void settle(T*& value) { asm volatile("" : "+l"(value)); }
// The same for ptxas, which moves arithmetic behind barriers: a check that cannot fail. Neither address is
// null; no packet is all ones.
SHUNT_DEVICE void pin(const void* a, const void* b) {
  asm volatile("{\n .reg .pred p;\n setp.eq.u64 p, %0, 0;\n @p trap;\n}" ::"l"(
      reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)));
}
SHUNT_DEVICE void pin(const Packet& packet) {
  asm volatile("{\n .reg .pred p;\n setp.eq.u32 p, %0, 0xffffffff;\n @p trap;\n}" ::"r"(
      packet.w[0] & packet.w[1] & packet.w[2] & packet.w[3]));
}
SHUNT_DEVICE void pin(uint32_t parts, uint32_t part_bytes) { pin(Packet{{parts, part_bytes, ~0u, ~0u}}); }
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

inline constexpr bool kSumsCommute = false;

SHUNT_DEVICE uint32_t thread() { return host::thread_index().thread; }
SHUNT_DEVICE uint32_t block() { return host::thread_index().block; }
SHUNT_DEVICE uint32_t block_dim() { return host::thread_index().block_dim; }
SHUNT_DEVICE void store(void* address, Packet p, Word whole, bool remote) {
  host::store_packet(address, join(p.w[0], p.w[1]), join(p.w[2], p.w[3]),
                     whole == Word::k8 ? host::Grain::k8 : host::Grain::k4, remote);
}
SHUNT_DEVICE Packet load(const void* address) {
  uint64_t low = 0, high = 0;
  host::load_packet(address, &low, &high);
  return packet_of(low, high);
}
SHUNT_DEVICE Packet load_user16(uintptr_t address) {
  Packet p;
  memcpy(&p, reinterpret_cast<const void*>(address), sizeof(p));
  return p;
}
SHUNT_DEVICE void store_user16(uintptr_t address, Packet p) {
  memcpy(reinterpret_cast<void*>(address), &p, sizeof(p));
}
SHUNT_DEVICE uint64_t load_user8(uintptr_t address) {
  uint64_t value;
  memcpy(&value, reinterpret_cast<const void*>(address), sizeof(value));
  return value;
}
SHUNT_DEVICE void store_user8(uintptr_t address, uint64_t value) {
  memcpy(reinterpret_cast<void*>(address), &value, sizeof(value));
}
SHUNT_DEVICE uint32_t load_word(const uint32_t* address) { return host::load_word(address); }
SHUNT_DEVICE void store_word(uint32_t* address, uint32_t value) {
  host::store_word(address, value);
}
SHUNT_DEVICE uint32_t exchange_word(uint32_t* address, uint32_t value) {
  return host::exchange_word(address, value);
}
SHUNT_DEVICE uint32_t add_word(uint32_t* address, uint32_t value) { return host::add_word(address, value); }
SHUNT_DEVICE uint32_t broadcast(uint32_t value, uint32_t from) {
  return host::broadcast(value, from);
}
SHUNT_DEVICE bool barrier_any(bool predicate) { return host::barrier_or(predicate) != 0; }
template <typename T>
SHUNT_DEVICE void settle(T&) {}
SHUNT_DEVICE void pin(const void*, const void*) {}
SHUNT_DEVICE void pin(const Packet&) {}
SHUNT_DEVICE void pin(uint32_t, uint32_t) {}
SHUNT_DEVICE void pause() { host::pause(); }
SHUNT_DEVICE void sleep_ns(uint32_t) {}
SHUNT_DEVICE uint64_t clock_ns() { return host::clock_ns(); }
SHUNT_DEVICE void trap() { host::trap(); }

#endif

}  // namespace device
// ---- where things lie in this rank's slab ----
SHUNT_DEVICE uint32_t* stop_word(const AllReduceParams& params) {
  return reinterpret_cast<uint32_t*>(params.slab + Geometry::kStopOffset);
}
SHUNT_DEVICE uint32_t* entering_word(const AllReduceParams& params) {
  return reinterpret_cast<uint32_t*>(params.slab + Geometry::kEnteringOffset);
}
SHUNT_DEVICE LaneState* lane_state(const AllReduceParams& params, uint32_t lane) {
  return reinterpret_cast<LaneState*>(params.slab + Geometry::kLaneOffset) + lane;
}

}  // namespace shunt
