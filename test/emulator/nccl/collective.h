// Collectives over the board: every rank publishes a chunk, waits for all, reads what it needs.
#pragma once

#include "test/emulator/nccl/core.h"
#include "test/emulator/nccl/operation.h"

namespace emu_nccl {

// Blocks until all ranks have taken part. False: halted, the result is unfinished. Ranks whose
// calls do not match say so on stderr and wait until they are halted.
bool run_collective(Core& core, const Operation& operation);

}  // namespace emu_nccl
