// What NCCLs newer than 2.18 declare, as far as it is hooked and the nccl.h of this build may lack it. The NCCL
// that a process loads may be newer than the build's: an operation or a maker of communicators that is not
// intercepted there would not keep the order of the calls (shim/hooks.h). Where nccl.h has a function, its own
// declaration counts, and test/preload/nccl_versions.py compares the lists with many versions.
//
// Each from src/nccl.h.in of github.com/NVIDIA/nccl at the first release that has it. Pointers to types that an
// older nccl.h lacks are void*: nothing here looks behind them, and calls pass them on.
#pragma once

#include <nccl.h>

extern "C" {
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 22, 3)
typedef struct ncclSimInfo_v22200 ncclSimInfo_t;
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 23, 4)
ncclResult_t ncclCommInitRankScalable(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 3)
#define NCCL_SHRINK_ABORT 0x01
ncclResult_t ncclCommShrink(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 1)
ncclResult_t ncclAlltoAll(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclGather(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclScatter(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 7)
ncclResult_t ncclCommRevoke(ncclComm_t, int);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 2)
ncclResult_t ncclCommGrow(ncclComm_t, int, const ncclUniqueId*, int, ncclComm_t*, ncclConfig_t*);
ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, void*, size_t, int, int, unsigned int,
                           ncclComm_t, cudaStream_t);
ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t);
ncclResult_t ncclWaitSignal(int, void*, ncclComm_t, cudaStream_t);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 7)
#define NCCL_SUSPEND_MEM 0x01
ncclResult_t ncclCommSuspend(ncclComm_t, int);
ncclResult_t ncclCommResume(ncclComm_t);
#endif

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 31, 2)
ncclResult_t ncclAllReduceConfig(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                 cudaStream_t, const void*);
ncclResult_t ncclBroadcastConfig(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t,
                                 const void*);
ncclResult_t ncclReduceConfig(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                              cudaStream_t, const void*);
ncclResult_t ncclAllGatherConfig(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t,
                                 const void*);
ncclResult_t ncclReduceScatterConfig(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                     cudaStream_t, const void*);
ncclResult_t ncclAlltoAllConfig(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t,
                                const void*);
ncclResult_t ncclGatherConfig(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t,
                              const void*);
ncclResult_t ncclScatterConfig(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t,
                               const void*);
#endif
}
