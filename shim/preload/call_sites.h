// The table of call sites: return address -> functions to call. An entry is written once and never
// changes, so that a call reads it without a lock (trampolines.S) and a forked child finds it
// whole.
#pragma once

#include <atomic>

#include "shim/engine_interface.h"

namespace shunt::preload {

inline constexpr unsigned kSiteMask = 1023;  // trampolines.S knows this number and the layout below

struct Site {
  std::atomic<const void*> caller;  // null: free; set after `functions`, which claims the entry
  std::atomic<HookTable> functions;
};
static_assert(sizeof(Site) == 16);

}  // namespace shunt::preload

extern "C" {

// The entry of a return address is the one at its low bits or one of the next few.
[[gnu::visibility(
    "hidden")]] extern shunt::preload::Site shunt_sites[shunt::preload::kSiteMask + 1];

// Where hook number `hook`, called from `caller`, shall go; never null.
[[gnu::visibility("hidden")]] void* shunt_miss(const void* caller, long hook);
}
