// The one list of intercepted NCCL functions. Types come from nccl.h by decltype; a function that the
// nccl.h of the build lacks is left out, one that the NCCL of the process lacks is a null table entry.
// Adding a function is adding a line here and a wrapper in shim/engine/wrappers.h.
#pragma once

#include <nccl.h>

// Collectives and point-to-point calls other than AllReduce are forwarded; they are here because a
// communicator's operations run in the order of the calls, shunted and forwarded ones alike.
//
// The versions are those of src/nccl.h.in in github.com/NVIDIA/nccl, each the first release
// that declares the function. 2.18.1 (ncclCommSplit) is the oldest that is supported.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 2)
#define SHUNT_HOOKS_2_31_2(X)                                                                     \
  X(ncclAllReduceConfig) X(ncclBroadcastConfig) X(ncclReduceConfig) X(ncclAllGatherConfig)        \
  X(ncclReduceScatterConfig) X(ncclAlltoAllConfig) X(ncclGatherConfig) X(ncclScatterConfig)
#else
#define SHUNT_HOOKS_2_31_2(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
#define SHUNT_HOOKS_2_29_2(X) X(ncclCommGrow) X(ncclPutSignal) X(ncclSignal) X(ncclWaitSignal)
#else
#define SHUNT_HOOKS_2_29_2(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
#define SHUNT_HOOKS_2_28_7(X) X(ncclCommRevoke)
#else
#define SHUNT_HOOKS_2_28_7(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 1)
#define SHUNT_HOOKS_2_28_1(X) X(ncclAlltoAll) X(ncclGather) X(ncclScatter)
#else
#define SHUNT_HOOKS_2_28_1(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
#define SHUNT_HOOKS_2_27_3(X) X(ncclCommShrink)
#else
#define SHUNT_HOOKS_2_27_3(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 4)
#define SHUNT_HOOKS_2_23_4(X) X(ncclCommInitRankScalable)
#else
#define SHUNT_HOOKS_2_23_4(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 3)
#define SHUNT_HOOKS_2_22_3(X) X(ncclGroupSimulateEnd)
#else
#define SHUNT_HOOKS_2_22_3(X)
#endif

#define SHUNT_HOOKS(X)                                                                            \
  X(ncclAllReduce)                                                                                \
  X(ncclGroupStart) X(ncclGroupEnd)                                                               \
  X(ncclCommInitRank) X(ncclCommInitRankConfig) X(ncclCommInitAll) X(ncclCommSplit)               \
  X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError)                \
  X(ncclReduce) X(ncclBcast) X(ncclBroadcast) X(ncclReduceScatter) X(ncclAllGather)               \
  X(ncclSend) X(ncclRecv)                                                                         \
  SHUNT_HOOKS_2_22_3(X) SHUNT_HOOKS_2_23_4(X) SHUNT_HOOKS_2_27_3(X)                               \
  SHUNT_HOOKS_2_28_1(X) SHUNT_HOOKS_2_28_7(X) SHUNT_HOOKS_2_29_2(X)                                \
  SHUNT_HOOKS_2_31_2(X)

namespace shunt {

#define SHUNT_HOOK_ENUM(name) k_##name,
enum Hook : int { SHUNT_HOOKS(SHUNT_HOOK_ENUM) kHooks };
#undef SHUNT_HOOK_ENUM

}  // namespace shunt
