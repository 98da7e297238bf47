// What the stand-in says: refusals (kept for ncclGetLastError, printed when NCCL_DEBUG is set) and
// loud lines about misuse that the real NCCL would answer with a hang or garbage.
#pragma once

#include <nccl.h>

#include <string>

namespace emu_nccl {

// Remembers the text, prints it if NCCL_DEBUG is set, returns `result`.
ncclResult_t refuse(ncclResult_t result, const std::string& text);
// Always on stderr, as one write: "emulated nccl: TEXT".
void shout(const std::string& text);
const char* last_error();
const char* error_string(ncclResult_t result);

}  // namespace emu_nccl
