// What the operations of a communicator need while they run on a stream's worker thread. It
// outlives the communicator for as long as an operation that was enqueued has not run.
#pragma once

#include <atomic>
#include <cstdint>

#include "test/emulator/nccl/segment.h"

namespace emu_nccl {

struct Core {
  Segment segment;
  std::atomic<uint32_t> id{0};
  // Raised by abort, revoke and shrink-with-abort: operations end unfinished.
  std::atomic<bool> halt_operations{false};
  // Raised by abort: making and splitting communicators end too.
  std::atomic<bool> halt_everything{false};
  // Held by the operation that runs; graphs replayed on two streams would otherwise mix their
  // steps.
  std::atomic<bool> running{false};
  uint32_t board_step = 0;  // guarded by `running`

  // Wakes the threads of this process that wait in the segment.
  void halt(bool everything) {
    halt_operations.store(true);
    if (everything) halt_everything.store(true);
    if (segment.mapped()) segment.ring(segment.rank());
  }
};

}  // namespace emu_nccl
