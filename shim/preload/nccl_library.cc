#include "shim/preload/nccl_library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <strings.h>

#include <atomic>

#include "shim/preload/engine_door.h"
#include "shim/preload/environment.h"
#include "shim/preload/hook_names.h"
#include "shim/preload/next_dlsym.h"
#include "shim/preload/report.h"

namespace shunt::preload {
namespace {

constexpr char kMark[] = "pncclAllReduce";

// One for each NCCL of the process, never freed; prepended without a lock.
struct Library {
  Module module;
  Library* next = nullptr;
  void* real[kHooks] = {};
};
std::atomic<Library*> libraries{nullptr};
std::atomic<bool> used{false};
std::atomic<bool> choice_reported{false};

void* open_loaded(const Module& module, int flags = 0) {
  if (module.is_program()) return dlopen(nullptr, RTLD_LAZY);
  return dlopen(module.path, RTLD_LAZY | RTLD_NOLOAD | flags);
}

// What `name` means on the handle of a loaded file: itself, then its dependencies.
void* look_up(const Module& module, const char* name) {
  if (!module) return nullptr;
  void* handle = open_loaded(module);
  if (handle == nullptr) return nullptr;
  void* found = next_dlsym()(handle, name);
  dlclose(handle);
  return found;
}

void warn(const char* message, const char* detail) {
  const Engine* log = engine();
  if (log == nullptr) return report(message, detail);
  char line[1024];
  strncpy(line, message, sizeof line - 1);
  line[sizeof line - 1] = '\0';
  strncat(line, detail, sizeof line - 1 - strlen(line));
  log->warn(line);
}

Module nccl_by_setting() {
  const char* path = trusted_getenv("SHUNT_NCCL");
  if (path == nullptr) return {};
  for (const char* unset : {"", "0", "off", "false", "no"}) {
    if (strcasecmp(path, unset) == 0) return {};
  }
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* mark = handle == nullptr ? nullptr : next_dlsym()(handle, kMark);
  if (mark != nullptr) return module_of(mark);
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) warn("SHUNT_NCCL does not name an NCCL library: ", path);
  return {};
}

Module first_nccl_loaded() {
  Module first;
  bool several = false;
  each_module([&](const Module& module, const dl_phdr_info&) {
    if (!is_nccl(module)) return false;
    several = static_cast<bool>(first);
    if (!several) first = module;
    return several;
  });
  if (several && !choice_reported.exchange(true)) {
    warn(
        "several NCCL libraries are loaded and a caller is linked with none of them; it gets the "
        "first "
        "(SHUNT_NCCL=path names another): ",
        first.path);
  }
  return first;
}

// NCCL's own calls of its public names must not be taken for the user's. A file that has NCCL
// linked into it, though, calls ncclAllReduce for the user, which NCCL itself never does.
bool is_nccl_and_nothing_else(const Module& module) {
  return is_nccl(module) && !calls_own(module, hook_name(k_ncclAllReduce));
}

}  // namespace

bool is_nccl(const Module& module) { return module && exported(module, kMark) != nullptr; }

Module global_nccl() {
  void* mark = next_dlsym()(RTLD_DEFAULT, kMark);
  return mark == nullptr ? Module{} : module_of(mark);
}

Module dependency_nccl(const Module& caller) {
  void* mark = look_up(caller, kMark);
  return mark == nullptr ? Module{} : module_of(mark);
}

Module nccl_for(const Module& caller) {
  if (is_nccl_and_nothing_else(caller)) return caller;
  Module found = global_nccl();
  if (!found) found = dependency_nccl(caller);
  if (!found) found = nccl_by_setting();
  if (!found) found = first_nccl_loaded();
  return found;
}

HookTable real_functions(const Module& nccl) {
  used.store(true, std::memory_order_relaxed);
  Library* head = libraries.load(std::memory_order_acquire);
  for (Library* library = head; library != nullptr; library = library->next) {
    if (library->module == nccl) return library->real;
  }
  void* memory = calloc(1, sizeof(Library));
  if (memory == nullptr) return nullptr;
  auto* made = static_cast<Library*>(memory);
  made->module = nccl;
  for (int hook = 0; hook < kHooks; ++hook) {
    made->real[hook] = exported(nccl, kRealNames[hook]);
    if (made->real[hook] == nullptr) made->real[hook] = exported(nccl, hook_name(hook));
  }
  open_loaded(nccl, RTLD_NODELETE);
  do {
    made->next = head;  // two threads may both add it: the tables say the same
  } while (!libraries.compare_exchange_weak(head, made, std::memory_order_acq_rel));
  return made->real;
}

HookTable functions_for(const Module& nccl, const Module& caller) {
  HookTable real = real_functions(nccl);
  if (caller == nccl && is_nccl_and_nothing_else(nccl)) return real;
  const Engine* shunt = engine();
  if (shunt == nullptr) return real;
  HookTable wrappers = shunt->wrappers_of(exported(nccl, kMark));
  return wrappers != nullptr ? wrappers : real;
}

HookTable functions_inside_engine(const void* return_address) {
  const Engine* open = engine_if_open();
  return open == nullptr ? nullptr : open->wrappers_of(return_address);
}

bool is_engine(const Module& module) {
  const Engine* open = engine_if_open();
  return open != nullptr && module == module_of(reinterpret_cast<const void*>(open->wrappers_of));
}

void* behind_us(const Module& caller, const char* name) {
  void* found = next_dlsym()(RTLD_NEXT, name);
  if (found == nullptr && caller && !caller.is_program()) found = look_up(caller, name);
  return found;
}

bool nccl_was_used() { return used.load(std::memory_order_relaxed); }

}  // namespace shunt::preload
