// What a user's code does with NCCL, linked in the ordinary way. The traces tell whether every
// argument arrived: one is on the stack, one is 128 bytes by value.
#pragma once

#include <nccl.h>

inline void* fake(unsigned long value) { return reinterpret_cast<void*>(value); }

// 0, or the number of the call that failed.
inline int user_calls() {
  ncclUniqueId id;
  for (unsigned i = 0; i < sizeof id; ++i) id.internal[i] = static_cast<char>(i * 7 + 3);
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, 4, id, 3) != ncclSuccess) return 1;
  if (comm != fake(0xc0)) return 2;
  if (ncclGroupStart() != ncclSuccess) return 3;
  if (ncclAllReduce(fake(0x11), fake(0x22), 33, ncclFloat64, ncclMax, comm,
                    static_cast<cudaStream_t>(fake(0x77))) != ncclSuccess) {
    return 4;
  }
  if (ncclGroupEnd() != ncclSuccess) return 5;
  if (ncclBcast(fake(1), 2, ncclInt8, 0, comm, nullptr) != ncclSuccess) return 6;
  if (ncclRecv(fake(1), 2, ncclInt8, 0, comm, nullptr) != ncclSuccess) return 7;
  if (ncclCommFinalize(comm) != ncclSuccess) return 8;
  return 0;
}
