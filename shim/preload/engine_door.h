// Opens libnccl-shunt-engine.so, which lies beside this file, when it is first needed.
#pragma once

#include "shim/engine_interface.h"

namespace shunt::preload {

// The engine, or nullptr if it cannot be used: then one line was written, and it is never tried
// again. Any thread, any number at once. No lock is held: a thread that waited here could hold the
// dynamic linker's lock (a library's constructor that uses NCCL), which the thread that it waits
// for needs.
const Engine* engine();

// The engine if it has been opened already, else nullptr.
const Engine* engine_if_open();

}  // namespace shunt::preload
