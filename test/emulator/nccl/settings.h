// The environment of the stand-in, read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emu_nccl {

struct Settings {
  std::string trace;      // EMU_NCCL_TRACE: file that gets one line for each API call
  int version = 0;        // EMU_NCCL_VERSION: code that ncclGetVersion reports; 0: the variant's
  long microseconds = 0;  // EMU_NCCL_US: time added to every operation
  // EMU_NCCL_NULL=n: an ncclAllReduce of at least n bytes returns at once and does nothing; 1:
  // every one of them. A larger n leaves the small ones alone by which a library under test
  // prepares itself.
  size_t null_from = SIZE_MAX;
  bool warn = false;            // NCCL_DEBUG: refused arguments are explained on stderr
  bool check_pointers = false;  // NCCL_CHECK_POINTERS=1: as in the real one
  bool blocking = true;         // NCCL_COMM_BLOCKING: default of ncclConfig_t::blocking
};
const Settings& settings();

}  // namespace emu_nccl
