// EMU_NCCL_TRACE: one line for each API call that reached the stand-in, appended with one write:
//   lib=2.28 pid=71 tid=73 fn=ncclAllReduce comm=9c01a2f3 rank=0/4 depth=0 bytes=4096 type=float
//   op=sum root=-1 capture=0
// comm is "-" where there is none (yet); what follows depth is there for operations only.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <cstddef>

#include "test/emulator/nccl/settings.h"

namespace emu_nccl {

inline bool tracing() { return !settings().trace.empty(); }

void trace_call(const char* function, const ncclComm* comm);
// `op` is NCCL's, or negative; `root` too, or a peer.
void trace_operation(const char* function, const ncclComm* comm, size_t bytes, int type, int op,
                     int root, CUstream stream);

}  // namespace emu_nccl
