// What differs between the copies of the stand-in that are built from the same sources.
#pragma once

namespace emu_nccl {

struct Variant {
  const char* name;  // in trace lines: which library a call reached
  int version;       // ncclGetVersion; EMU_NCCL_VERSION overrides it
  int datatypes;     // ncclNumTypes of that release
};
extern const Variant kVariant;

}  // namespace emu_nccl
