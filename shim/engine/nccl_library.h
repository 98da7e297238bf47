// The real NCCL libraries of the process. Each ncclX is a weak alias of pncclX, NCCL's profiling interface
// (nccl.h), so the real functions are the pncclX of the library. A communicator belongs to the library
// that made it, hence one table of wrappers for each library.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>
#include <utility>

#include "kernels/datatype.h"
#include "shim/hooks.h"

namespace shunt {

inline constexpr int kMaxLibraries = 8;

template <int kHook>
struct HookType;
#define SHUNT_HOOK_TYPE(name) \
  template <>                 \
  struct HookType<k_##name> { using type = decltype(&::name); };
SHUNT_HOOKS(SHUNT_HOOK_TYPE)
#undef SHUNT_HOOK_TYPE

struct NcclLibrary;

// The library whose real function this thread is in, or null. NCCL calls some of its own public names;
// such a call reaches us again and must go straight to the real function.
extern constinit thread_local const NcclLibrary* inside_library;

struct NcclLibrary {
  int slot = 0;
  const void* base = nullptr;  // load address
  std::string path;
  int version = 0;  // NCCL_VERSION_CODE of the library
  void* real[kHooks] = {};
  void* wrappers[kHooks] = {};  // null where the library lacks the function

  // Not hooked, but called.
  decltype(&::ncclCommCount) comm_count = nullptr;
  decltype(&::ncclCommUserRank) comm_user_rank = nullptr;
  decltype(&::ncclCommCuDevice) comm_cu_device = nullptr;
  decltype(&::ncclGetErrorString) error_string = nullptr;

  template <int kHook, typename... Args>
  ncclResult_t call(Args... args) const {
    const NcclLibrary* const outer = inside_library;
    inside_library = this;
    const ncclResult_t result =
        reinterpret_cast<typename HookType<kHook>::type>(real[kHook])(args...);
    inside_library = outer;
    return result;
  }
};

// The library that contains `address`, adopted when first seen. nullptr: not an NCCL, or one too many.
NcclLibrary* library_of(const void* address);

// Fills `wrappers` of an adopted library (wrappers.cc).
void fill_wrappers(NcclLibrary& library);

static_assert(static_cast<int>(DataType::kBfloat16) == ncclBfloat16);
static_assert(static_cast<int>(DataType::kFloat64) == ncclFloat64);
static_assert(static_cast<int>(DataType::kFloat32) == ncclFloat32);
static_assert(static_cast<int>(DataType::kFloat16) == ncclFloat16);
static_assert(static_cast<int>(DataType::kUint64) == ncclUint64);
static_assert(static_cast<int>(DataType::kInt8) == ncclInt8);
static_assert(static_cast<int>(ReduceOp::kSum) == ncclSum);
static_assert(static_cast<int>(ReduceOp::kProd) == ncclProd);
static_assert(static_cast<int>(ReduceOp::kMax) == ncclMax);
static_assert(static_cast<int>(ReduceOp::kMin) == ncclMin);
static_assert(static_cast<int>(ReduceOp::kAvg) == ncclAvg);

}  // namespace shunt
