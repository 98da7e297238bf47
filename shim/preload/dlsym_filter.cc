// Callers that look NCCL up by hand (ctypes.CDLL, then dlsym on the handle) never see our exported
// names: the look-up is what we can answer. Everything else passes on to the next dlsym.
#include <dlfcn.h>
#include <stdlib.h>
#include <strings.h>

#include <atomic>

#include "shim/preload/engine_door.h"
#include "shim/preload/environment.h"
#include "shim/preload/hook_names.h"
#include "shim/preload/nccl_library.h"
#include "shim/preload/next_dlsym.h"

namespace shunt::preload {
namespace {

// In two registers: trampolines.S reads them.
struct Answer {
  void* address;
  long done;  // 0: jump to `address`, the next dlsym; else: `address` is what the caller gets
};

Answer pass() { return {reinterpret_cast<void*>(next_dlsym()), 0}; }
Answer answer(void* address) {
  dlerror();  // a look-up that succeeds leaves no message
  return {address, 1};
}
// What dlsym gives for a name that is not there, message included.
Answer no_such_symbol(const char* name) { return {next_dlsym()(RTLD_NEXT, name), 1}; }

// SHUNT_DLSYM, read when an NCCL name is first looked up. The engine reports a malformed value.
bool switched_off() {
  static std::atomic<int> off{-1};
  int known = off.load(std::memory_order_relaxed);
  if (known >= 0) return known != 0;
  known = 0;
  if (const char* value = trusted_getenv("SHUNT_DLSYM")) {
    for (const char* no : {"", "0", "off", "false", "no"}) known |= strcasecmp(value, no) == 0;
  }
  off.store(known, std::memory_order_relaxed);
  return known != 0;
}

bool is_ours(const Module& module) {
  return module == module_of(reinterpret_cast<void*>(&switched_off)) || is_engine(module);
}

bool is_program_handle(void* handle) { return handle == dlopen(nullptr, RTLD_LAZY); }

// A look-up in the global scope ends at our exported name. Without us it would have found an NCCL
// (the program's or, for RTLD_DEFAULT, one that the caller was linked with), another library, or
// nothing.
Answer in_our_place(void* handle, int hook, const Module& caller, void* exported_here) {
  if (handle != RTLD_DEFAULT && !is_program_handle(handle)) return pass();  // asked us by name
  const char* name = hook_name(hook);
  const Module scope = handle == RTLD_DEFAULT ? caller : Module{};
  if (const Module nccl = global_nccl()) {
    if (exported(nccl, kRealNames[hook]) != nullptr) return answer(exported_here);
  } else if (const Module linked = dependency_nccl(scope)) {
    if (exported(linked, kRealNames[hook]) != nullptr) {
      HookTable functions = functions_for(linked, scope);
      if (functions != nullptr && functions[hook] != nullptr) return answer(functions[hook]);
    }
  }
  void* behind = behind_us(scope, name);
  return behind != nullptr ? answer(behind) : no_such_symbol(name);
}

Answer filter(void* handle, const char* name, const void* caller_address) {
  if (name == nullptr || strncmp(name, "nccl", 4) != 0 || handle == RTLD_NEXT) return pass();
  const int hook = hook_of(name);
  if (hook < 0 || switched_off()) return pass();
  const Module caller = module_of(caller_address);
  if (is_ours(caller)) return pass();  // the engine wants the real functions
  void* found = next_dlsym()(handle, name);
  if (found == nullptr) return pass();
  const Module owner = module_of(found);
  if (is_ours(owner)) return in_our_place(handle, hook, caller, found);
  if (!is_nccl(owner) || engine() == nullptr) return pass();
  HookTable functions = functions_for(owner, caller);
  if (functions == nullptr || functions[hook] == nullptr) return pass();
  return answer(functions[hook]);
}

}  // namespace
}  // namespace shunt::preload

extern "C" [[gnu::visibility("hidden")]] shunt::preload::Answer shunt_filter_dlsym(
    void* handle, const char* name, const void* caller) {
  return shunt::preload::filter(handle, name, caller);
}
