// The one list of intercepted NCCL functions. Types come from nccl.h by decltype; a function that the
// nccl.h of the build lacks is left out, one that the NCCL of the process lacks is a null table entry.
// Adding a function is adding a line here and a wrapper in shim/engine/wrappers.h.
#pragma once

#include <nccl.h>

// Collectives and point-to-point calls other than AllReduce are forwarded; they are here because a
// communicator's operations run in the order of the calls, shunted and forwarded ones alike.
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
#define SHUNT_HOOKS_2_28(X) X(ncclAlltoAll) X(ncclGather) X(ncclScatter) X(ncclCommRevoke)
#else
#define SHUNT_HOOKS_2_28(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
#define SHUNT_HOOKS_2_27(X) X(ncclCommShrink)
#else
#define SHUNT_HOOKS_2_27(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
#define SHUNT_HOOKS_2_23(X) X(ncclCommInitRankScalable)
#else
#define SHUNT_HOOKS_2_23(X)
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
#define SHUNT_HOOKS_2_22(X) X(ncclGroupSimulateEnd)
#else
#define SHUNT_HOOKS_2_22(X)
#endif

#define SHUNT_HOOKS(X)                                                                            \
  X(ncclAllReduce)                                                                                \
  X(ncclGroupStart) X(ncclGroupEnd)                                                               \
  X(ncclCommInitRank) X(ncclCommInitRankConfig) X(ncclCommInitAll) X(ncclCommSplit)               \
  X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError)                \
  X(ncclReduce) X(ncclBcast) X(ncclBroadcast) X(ncclReduceScatter) X(ncclAllGather)               \
  X(ncclSend) X(ncclRecv)                                                                         \
  SHUNT_HOOKS_2_22(X) SHUNT_HOOKS_2_23(X) SHUNT_HOOKS_2_27(X) SHUNT_HOOKS_2_28(X)

namespace shunt {

#define SHUNT_HOOK_ENUM(name) k_##name,
enum Hook : int { SHUNT_HOOKS(SHUNT_HOOK_ENUM) kHooks };
#undef SHUNT_HOOK_ENUM

}  // namespace shunt
