// ncclGroupStart/End of the calling thread: operations and jobs are queued and run at the outermost
// end.
#pragma once

#include <nccl.h>

#include <functional>

#include "test/emulator/nccl/communicator.h"

namespace emu_nccl {

// A call that makes or ends a communicator and may wait for other ranks. `comm` is whose
// ncclConfig_t::blocking decides; null: blocking.
struct Job {
  ncclComm* comm = nullptr;
  std::function<ncclResult_t()> body;
  // The body frees comm: its state may not be set afterwards, and nothing runs in its worker.
  bool ends_comm = false;
  // Jobs of one group with the same parent talk over it, so they run one after the other.
  const ncclComm* parent = nullptr;
  // Instead of the body, if the group fails.
  std::function<void()> cancel = nullptr;
};

int group_depth();
void group_start();
ncclResult_t group_end();
// Ends a group without running it. False: not in a group.
ncclResult_t group_simulate_end(ncclSimInfo_t* info);

// Runs now or, in a group, at its end. A non-blocking communicator's job: ncclInProgress.
ncclResult_t submit(Job job);
ncclResult_t submit(ncclComm* comm, const Operation& operation);
// An error of a call: in a group, its end returns it too and runs nothing. Returns `result`.
ncclResult_t fail_group(ncclResult_t result);

}  // namespace emu_nccl
