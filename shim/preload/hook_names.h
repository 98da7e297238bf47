// The names of SHUNT_HOOKS as text. Arrays of characters, not of pointers: pointers would have to
// be relocated in every process that preloads this file.
#pragma once

#include <string.h>

#include "shim/hooks.h"

namespace shunt::preload {

#define SHUNT_REAL_NAME(name) "p" #name,
inline constexpr char kRealNames[kHooks][32] = {
    SHUNT_HOOKS(SHUNT_REAL_NAME)};  // NCCL's own entries
#undef SHUNT_REAL_NAME

inline const char* hook_name(int hook) { return kRealNames[hook] + 1; }

// The index of `name` in SHUNT_HOOKS, or -1.
inline int hook_of(const char* name) {
  for (int hook = 0; hook < kHooks; ++hook) {
    if (strcmp(hook_name(hook), name) == 0) return hook;
  }
  return -1;
}

}  // namespace shunt::preload
