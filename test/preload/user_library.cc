// A library that was linked with an NCCL: use_nccl() makes the calls of user_calls.h.
#include <dlfcn.h>
#include <string.h>

#include "shim/hooks.h"
#include "test/preload/user_calls.h"

extern "C" [[gnu::visibility("default")]] int use_nccl() { return user_calls(); }
extern "C" [[gnu::visibility("default")]] int use_new_function() {
  return ncclCommRevoke(nullptr, 0);
}

// Looks ncclAllReduce up as a program does that asks the global scope for optional functions. -1:
// not there, and dlerror says so; -2: not there, and dlerror does not.
extern "C" [[gnu::visibility("default")]] int look_up_default() {
  auto reduce = reinterpret_cast<decltype(&ncclAllReduce)>(dlsym(RTLD_DEFAULT, "ncclAllReduce"));
  if (reduce == nullptr) {
    const char* message = dlerror();
    return message != nullptr && strstr(message, "undefined symbol: ncclAllReduce") != nullptr ? -1
                                                                                               : -2;
  }
  return reduce(fake(0x11), fake(0x22), 33, ncclFloat64, ncclMax,
                static_cast<ncclComm_t>(fake(0xc0)), static_cast<cudaStream_t>(fake(0x77)));
}

// 32 calls whose return addresses agree in their low bits, by which they are remembered.
#define CALL                   \
  asm volatile(".p2align 10"); \
  failed += ncclGroupEnd();
#define EIGHT CALL CALL CALL CALL CALL CALL CALL CALL
extern "C" [[gnu::visibility("default")]] int use_crowded_sites() {
  int failed = 0;
  EIGHT EIGHT EIGHT EIGHT return failed;
}

// Calls every hooked function but the two that look at their arguments, all without any.
#define CALL_BARE(name) \
  if (!typed(shunt::k_##name)) failed += bare(reinterpret_cast<void*>(&name))();
static constexpr bool typed(shunt::Hook hook) {
  return hook == shunt::k_ncclAllReduce || hook == shunt::k_ncclCommInitRank;
}
static auto bare(void* function) { return reinterpret_cast<ncclResult_t (*)()>(function); }
extern "C" [[gnu::visibility("default")]] int use_every_function() {
  int failed = 0;
  SHUNT_HOOKS(CALL_BARE)
  return failed;
}
