// The dlsym behind ours: libc's, or that of another preloaded tool that comes after us.
#pragma once

namespace shunt::preload {

using DlsymFn = void* (*)(void* handle, const char* name);

// Never null. Allocates nothing and takes no lock of ours: an allocator may ask before any
// constructor has run.
DlsymFn next_dlsym();

}  // namespace shunt::preload
