// struct ncclComm of the stand-in, and what the API functions share.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "test/emulator/nccl/core.h"
#include "test/emulator/nccl/operation.h"
#include "test/emulator/nccl/stream_order.h"

namespace emu_nccl {

inline constexpr uint64_t kCommMagic = 0x0280028002800280;

// An operator of ncclRedOpCreatePreMulSum.
struct UserOperator {
  ncclDataType_t type;
  Scalar scalar;
  const void* scalar_address;
};

}  // namespace emu_nccl

struct ncclComm {
  uint64_t start_magic = emu_nccl::kCommMagic;
  std::shared_ptr<emu_nccl::Core> core = std::make_shared<emu_nccl::Core>();
  int rank = -1;
  int ranks = 0;
  int device = -1;
  int lowest_capability = 0;  // of all ranks' GPUs
  CUcontext context = nullptr;
  bool blocking = true;
  std::atomic<ncclResult_t> state{ncclInProgress};  // what ncclCommGetAsyncError says
  std::atomic<bool> revoked{false};
  std::atomic<bool> finalized{false};
  std::atomic<bool> suspended{false};
  // In the communicator, not in a thread_local: with two copies in one process the public name that
  // one calls is the other's.
  std::atomic<std::thread::id> asking{};
  emu_nccl::StreamOrder order;
  std::thread worker;  // the latest call that returned ncclInProgress
  std::mutex mutex;    // guards what follows
  std::map<int, emu_nccl::UserOperator> operators;
  std::set<void*> registrations;
  uint64_t end_magic = emu_nccl::kCommMagic;
};

namespace emu_nccl {

// NCCL's CommCheck: null, or not a communicator.
ncclResult_t check_comm(const ncclComm* comm, const char* function);
// NCCL's ncclCommEnsureReady; asks through the public ncclCommGetAsyncError, as the real one does.
ncclResult_t ensure_ready(ncclComm* comm);
// The calling thread is inside ensure_ready(): what it calls by a public name did not come from
// outside.
bool asks_itself(const ncclComm* comm);

// NCCL's parseCommConfig, as far as the stand-in has such settings. config may be null.
ncclResult_t parse_config(const ncclConfig_t* config, bool* blocking);
// The calling thread's context and device; device 0's primary context if there is none.
ncclResult_t current_device(CUcontext* context, int* device);

// Waits until what was enqueued has run, or has ended because the core was halted; then frees.
ncclResult_t retire(ncclComm* comm);

}  // namespace emu_nccl
