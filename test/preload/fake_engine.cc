// An engine that traces and forwards, so that routing is tested apart from the real engine: which
// library a call was taken for, and that every argument came through.
#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <utility>

#include "shim/engine_interface.h"
#include "shim/hooks.h"
#include "test/preload/trace.h"

namespace {

constexpr int kLibraries = 4;

struct Library {
  std::atomic<const void*> base{nullptr};
  std::atomic<bool> filled{false};
  std::atomic<const char*> name{""};  // of the loaded file, which stays loaded
  void* real[shunt::kHooks] = {};
  void* wrappers[shunt::kHooks] = {};
};
Library libraries[kLibraries];

constexpr const char* kNames[] = {
#define NAME(name) #name,
    SHUNT_HOOKS(NAME)
#undef NAME
};

// The library whose real function this thread is in. NCCL calls some of its public names from
// there, also by a tail call (ncclBcast), which then seems to come from the engine: straight on to
// the real function.
thread_local Library* inside = nullptr;

template <shunt::Hook hook, typename Function>
struct Nested;
template <shunt::Hook hook, typename Result, typename... Arguments>
struct Nested<hook, Result(Arguments...)> {
  static Result call(Arguments... arguments) {
    return reinterpret_cast<Result (*)(Arguments...)>(inside->real[hook])(arguments...);
  }
};
void* const nested[] = {
#define ENTRY(name) reinterpret_cast<void*>(&Nested<shunt::k_##name, decltype(name)>::call),
    SHUNT_HOOKS(ENTRY)
#undef ENTRY
};

template <int slot, shunt::Hook hook, typename Function>
struct Wrapper;
template <int slot, shunt::Hook hook, typename Result, typename... Arguments>
struct Wrapper<slot, hook, Result(Arguments...)> {
  static Result call(Arguments... arguments) {
    Library& library = libraries[slot];
    if (traced()) {
      char who[300];
      snprintf(who, sizeof who, "%s %s", inside != nullptr ? "nested" : "engine", library.name.load());
      trace(who, kNames[hook]);
    }
    if (inside != nullptr) return Nested<hook, Result(Arguments...)>::call(arguments...);
    inside = &library;
    const Result result =
        reinterpret_cast<Result (*)(Arguments...)>(library.real[hook])(arguments...);
    inside = nullptr;
    return result;
  }
};

template <int slot>
void fill(Library& library, void* handle) {
#define ENTRY(name)                                                                     \
  library.real[shunt::k_##name] = dlsym(handle, "p" #name);                             \
  if (library.real[shunt::k_##name] != nullptr) {                                       \
    library.wrappers[shunt::k_##name] =                                                 \
        reinterpret_cast<void*>(&Wrapper<slot, shunt::k_##name, decltype(name)>::call); \
  }
  SHUNT_HOOKS(ENTRY)
#undef ENTRY
  // The engine's own look-ups are never answered with a wrapper, and may leave a message behind.
  void* found = dlsym(handle, "ncclSend");
  if (found != nullptr && found != library.real[shunt::k_ncclSend])
    trace("engine", "got a wrapper");
  (void)dlsym(RTLD_DEFAULT, "no_such_name");
}

// With SHUNT_FAKE_BACKTRACE set: who called, for the test of the trampolines' unwind tables.
void trace_callers() {
  if (getenv("SHUNT_FAKE_BACKTRACE") == nullptr) return;
  void* frames[32];
  const int count = backtrace(frames, 32);
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    if (dladdr(frames[i], &info) == 0) continue;
    const char* slash = strrchr(info.dli_fname, '/');
    trace("frame", slash != nullptr ? slash + 1 : info.dli_fname);
  }
}

// Claims a slot for the library and fills it. Several threads may fill one slot: they write the
// same. No lock: a child that is forked while another thread held it would wait for ever.
shunt::HookTable adopt(const Dl_info& info) {
  shunt::HookTable result = nullptr;
  auto take = [&]<int slot>() {
    Library& library = libraries[slot];
    const void* owner = nullptr;
    if (!library.base.compare_exchange_strong(owner, info.dli_fbase) && owner != info.dli_fbase) {
      return false;
    }
    result = library.wrappers;
    if (library.filled.load(std::memory_order_acquire)) return true;
    const char* slash = strrchr(info.dli_fname, '/');
    library.name.store(slash != nullptr ? slash + 1 : info.dli_fname);
    void* handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) dlclose(handle);  // what keeps it loaded is the preloaded file
    fill<slot>(library, handle != nullptr ? handle : dlopen(nullptr, RTLD_LAZY));
    library.filled.store(true, std::memory_order_release);
    return true;
  };
  [&]<int... slots>(std::integer_sequence<int, slots...>) {
    (take.template operator()<slots>() || ...);
  }
  (std::make_integer_sequence<int, kLibraries>());
  return result;
}

const char inside_engine = 0;

shunt::HookTable wrappers_of(const void* address) {
  trace_callers();
  Dl_info info;
  Dl_info self;
  if (dladdr(address, &info) == 0 || dladdr(&inside_engine, &self) == 0) return nullptr;
  return self.dli_fbase == info.dli_fbase ? nested : adopt(info);
}

void warn(const char* message) { fprintf(stderr, "fake engine: %s\n", message); }

#if !defined(FAKE_ENGINE_ABI)
#define FAKE_ENGINE_ABI shunt::kEngineAbi
#endif
constexpr shunt::Engine kEngine{FAKE_ENGINE_ABI, &wrappers_of, &warn};

}  // namespace

extern "C" [[gnu::visibility("default")]] const shunt::Engine* shunt_engine() {
  trace("engine", "opened");
  return &kEngine;
}
