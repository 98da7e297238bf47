// How ranks find each other: from a unique id, or from a communicator that they already share.
#pragma once

#include <nccl.h>

#include <vector>

#include "test/emulator/nccl/communicator.h"

namespace emu_nccl {

// All block until every rank has joined, or the communicator is aborted (then ncclInternalError).
// They fill in core->segment, rank, ranks, lowest_capability and create the order's events.

ncclResult_t join(ncclComm* comm, const SegmentName& name, int ranks, int rank);
// `child` is null for a rank without a color.
ncclResult_t join_split(ncclComm* parent, ncclComm* child, int color, int key);
// Ranks of the parent keep their numbers. `id` is null on all but one of them.
ncclResult_t join_grown(ncclComm* parent, ncclComm* child, int ranks, const SegmentName* id);
ncclResult_t join_shrunk(ncclComm* parent, ncclComm* child, const std::vector<int>& excluded);

}  // namespace emu_nccl
