#include "shim/engine/driver_api.h"

#include <dlfcn.h>

namespace shunt::cu {
namespace {

struct Loaded {
  Api api;
  std::string error;
};

// dlsym through the chain, so that other preloaded tools (and the fault tests) stay in between.
template <typename F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

Loaded load() {
  Loaded loaded;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    loaded.error = std::string("no CUDA driver: ") + (why != nullptr ? why : "libcuda.so.1");
    return loaded;
  }
#define SHUNT_DRIVER_FIND(member, symbol, args)                                          \
  if (!find(library, #symbol, loaded.api.member) && loaded.error.empty()) {              \
    loaded.error = "the CUDA driver is too old: it lacks " #symbol;                      \
  }
  SHUNT_DRIVER_FUNCTIONS(SHUNT_DRIVER_FIND)
#undef SHUNT_DRIVER_FIND
  find(library, "cuCtxGetId", loaded.api.context_id);
  find(library, "cuStreamGetId", loaded.api.stream_id);
  return loaded;
}

}  // namespace

const Api& api() {
  static const Loaded loaded = load();
  if (!loaded.error.empty()) throw Error(loaded.error, -1);
  return loaded.api;
}

std::string error_text(const char* function, Result result) {
  const char* name = nullptr;
  if (api().error_name(result, &name) != kSuccess || name == nullptr) name = "unknown error";
  return std::string(function) + ": " + name + " (" + std::to_string(result) + ")";
}

}  // namespace shunt::cu
