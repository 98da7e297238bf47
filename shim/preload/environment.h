// The environment of a set-uid program (AT_SECURE) is its caller's, who must not choose what it loads.
#pragma once

#include <stdlib.h>
#include <sys/auxv.h>

namespace shunt::preload {

inline const char* trusted_getenv(const char* name) {
  return getauxval(AT_SECURE) == 0 ? getenv(name) : nullptr;
}

}  // namespace shunt::preload
