// The seam between the two files of the product. libnccl-shunt.so, which users preload, knows the dynamic
// linker and nothing else; it opens libnccl-shunt-engine.so, which lies beside it, when a program first
// uses NCCL. All of this is internal: the two files are always of one build (kEngineAbi).
#pragma once

#include <cstdint>

namespace shunt {

inline constexpr uint32_t kEngineAbi = 1;

// Functions of one NCCL library in the order of SHUNT_HOOKS (shim/hooks.h); a null entry: that library
// lacks the function.
using HookTable = void* const*;

struct Engine {
  uint32_t abi;  // kEngineAbi
  // The wrappers to call in place of the NCCL library that contains `address` (any address inside it).
  // Adopts the library when it is first seen. nullptr: not an NCCL library (no pncclAllReduce), or too
  // many libraries; the caller then uses the real functions. Thread-safe; never throws.
  HookTable (*wrappers_of)(const void* address);
  // One line for a condition that only the preloaded file can see. Thread-safe; never throws.
  void (*warn)(const char* message);
};

}  // namespace shunt

// The engine's only exported symbol.
extern "C" const shunt::Engine* shunt_engine();
