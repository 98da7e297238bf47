// Puts a communicator's operations on their streams.
#pragma once

#include <nccl.h>

#include <vector>

#include "test/emulator/nccl/communicator.h"

namespace emu_nccl {

// The operations of one group on one communicator, as one host function: first the collectives, one
// after the other, then the sends and receives, all at once. Eager or into the streams' capture.
ncclResult_t launch(ncclComm* comm, std::vector<Operation> operations);

}  // namespace emu_nccl
