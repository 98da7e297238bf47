// Sends and receives of one group, which progress together; and small notes between the host
// threads of ranks, by which communicators are split and shrunk.
#pragma once

#include <span>
#include <vector>

#include "test/emulator/nccl/core.h"
#include "test/emulator/nccl/operation.h"

namespace emu_nccl {

// False: halted, some transfers are unfinished.
bool run_point_to_point(Core& core, std::span<const Operation> operations);

// At most kNoteBytes; each pair's notes arrive in order. False: aborted.
bool send_note(Core& core, int to, const void* data, size_t bytes);
bool receive_note(Core& core, int from, void* data, size_t bytes);

}  // namespace emu_nccl
