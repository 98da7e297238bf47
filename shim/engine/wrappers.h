// What runs in place of each hooked NCCL function. Overloads of on_call by hook; the generic one is for
// the operations that are always forwarded.
#pragma once

#include <nccl.h>

#include "shim/engine/nccl_library.h"

namespace shunt {

template <int kHook>
struct HookTag {};

}  // namespace shunt
