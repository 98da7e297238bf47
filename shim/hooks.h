// The one list of intercepted NCCL functions, the same whatever the nccl.h of the build is. Types come from
// nccl.h by decltype, or from newer_nccl.h; one that the NCCL of the process lacks is a null table entry.
// Adding a function is adding a line here (and there), and a wrapper in shim/engine/wrappers.cc unless it is an
// operation on a stream.
#pragma once

#include "shim/newer_nccl.h"

// Collectives and point-to-point calls other than AllReduce are forwarded; they are here because a
// communicator's operations run in the order of the calls, shunted and forwarded ones alike.
//
// The versions are those of src/nccl.h.in in github.com/NVIDIA/nccl, each the first release
// that declares the function. 2.18.1 (ncclCommSplit) is the oldest that is supported.
#define SHUNT_HOOKS_2_22_3(X) X(ncclGroupSimulateEnd)
#define SHUNT_HOOKS_2_23_4(X) X(ncclCommInitRankScalable)
#define SHUNT_HOOKS_2_27_3(X) X(ncclCommShrink)
#define SHUNT_HOOKS_2_28_1(X) X(ncclAlltoAll) X(ncclGather) X(ncclScatter)
#define SHUNT_HOOKS_2_28_7(X) X(ncclCommRevoke)
#define SHUNT_HOOKS_2_29_2(X) X(ncclCommGrow) X(ncclPutSignal) X(ncclSignal) X(ncclWaitSignal)
#define SHUNT_HOOKS_2_29_7(X) X(ncclCommSuspend) X(ncclCommResume)
#define SHUNT_HOOKS_2_31_2(X)                                                                     \
  X(ncclAllReduceConfig) X(ncclBroadcastConfig) X(ncclReduceConfig) X(ncclAllGatherConfig)        \
  X(ncclReduceScatterConfig) X(ncclAlltoAllConfig) X(ncclGatherConfig) X(ncclScatterConfig)

#define SHUNT_HOOKS(X)                                                                            \
  X(ncclAllReduce)                                                                                \
  X(ncclGroupStart) X(ncclGroupEnd)                                                               \
  X(ncclCommInitRank) X(ncclCommInitRankConfig) X(ncclCommInitAll) X(ncclCommSplit)               \
  X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort) X(ncclCommGetAsyncError)                \
  X(ncclReduce) X(ncclBcast) X(ncclBroadcast) X(ncclReduceScatter) X(ncclAllGather)               \
  X(ncclSend) X(ncclRecv)                                                                         \
  SHUNT_HOOKS_2_22_3(X) SHUNT_HOOKS_2_23_4(X) SHUNT_HOOKS_2_27_3(X)                               \
  SHUNT_HOOKS_2_28_1(X) SHUNT_HOOKS_2_28_7(X) SHUNT_HOOKS_2_29_2(X)                               \
  SHUNT_HOOKS_2_29_7(X) SHUNT_HOOKS_2_31_2(X)

namespace shunt {

#define SHUNT_HOOK_ENUM(name) k_##name,
enum Hook : int { SHUNT_HOOKS(SHUNT_HOOK_ENUM) kHooks };
#undef SHUNT_HOOK_ENUM

}  // namespace shunt
