// Which NCCL a caller would have reached without us. A process may hold several, and a communicator
// belongs to the one that made it.
#pragma once

#include "shim/engine_interface.h"
#include "shim/preload/elf_module.h"

namespace shunt::preload {

// True for a file that contains an NCCL: it exports the profiling name of ncclAllReduce.
bool is_nccl(const Module& module);

// The NCCL in the global scope of this process, or none. The dynamic linker looks there first for
// every caller.
Module global_nccl();

// The NCCL among what `caller` was linked with, or none: what a caller in a file that was opened
// with RTLD_LOCAL is bound to when there is no global one.
Module dependency_nccl(const Module& caller);

// The NCCL of a call that returns to `caller`: itself if it is an NCCL, the global one, that of its
// dependencies, the one that SHUNT_NCCL names, or the first one loaded (with a warning if that was
// a choice); or none.
Module nccl_for(const Module& caller);

// The real functions of `nccl`, which stays loaded from now on (what has been handed out would
// dangle otherwise). nullptr if there is no memory for the table.
HookTable real_functions(const Module& nccl);

// What to call in place of `nccl`: the engine's wrappers, or the real functions where there is no
// engine and where `caller` is that NCCL itself, which calls some of its public names.
HookTable functions_for(const Module& nccl, const Module& caller);

// For a call that returns into the engine. It calls no public name: NCCL did, by a tail call in a
// real function that the engine called. Only the engine knows in which library this thread is.
HookTable functions_inside_engine(const void* return_address);

// Whether `module` is the engine's file.
bool is_engine(const Module& module);

// The definition of a hooked name that a library other than a real NCCL offers behind us (a
// replacement of NCCL without the profiling names, say), or nullptr.
void* behind_us(const Module& caller, const char* name);

// Whether any NCCL was found for any call so far.
bool nccl_was_used();

}  // namespace shunt::preload
