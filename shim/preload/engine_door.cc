#include "shim/preload/engine_door.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>

#include <atomic>

#include "shim/preload/next_dlsym.h"
#include "shim/preload/report.h"

namespace shunt::preload {
namespace {

constexpr char kFile[] = "/libnccl-shunt-engine.so";
constexpr Engine kUnusable{};  // what `opened` points to after a failure

std::atomic<const Engine*> opened{nullptr};

struct Attempt {
  const Engine* engine = nullptr;
  const char* problem = nullptr;
  const char* detail = "";
};

// The folder as it was when this file was loaded: LD_PRELOAD may be relative, and the program may
// have changed its directory since. (dlopen's own $ORIGIN would be that of a tool that wraps
// dlopen.)
bool own_folder(char (&folder)[PATH_MAX + sizeof kFile]) {
  Dl_info info;
  link_map* self = nullptr;
  void** out = reinterpret_cast<void**>(&self);
  if (dladdr1(&opened, &info, out, RTLD_DL_LINKMAP) == 0 || self == nullptr) return false;
  return dlinfo(self, RTLD_DI_ORIGIN, folder) == 0;
}

Attempt open_engine() {
  char path[PATH_MAX + sizeof kFile] = "";
  if (!own_folder(path)) return {nullptr, "cannot tell where libnccl-shunt.so lies", ""};
  strcat(path, kFile);
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {nullptr, "cannot load the engine: ", dlerror()};
  auto entry = reinterpret_cast<decltype(&shunt_engine)>(next_dlsym()(handle, "shunt_engine"));
  if (entry == nullptr) return {nullptr, "not an engine: ", kFile + 1};
  const Engine* made = entry();
  if (made == nullptr || made->abi != kEngineAbi) {
    return {nullptr, "of another build than libnccl-shunt.so: ", kFile + 1};
  }
  return {made, nullptr, ""};
}

const Engine* usable(const Engine* found) { return found == &kUnusable ? nullptr : found; }

}  // namespace

const Engine* engine() {
  const Engine* known = opened.load(std::memory_order_acquire);
  if (known != nullptr) return usable(known);
  const Attempt attempt = open_engine();
  const Engine* result = attempt.engine != nullptr ? attempt.engine : &kUnusable;
  if (opened.compare_exchange_strong(known, result, std::memory_order_acq_rel)) {
    if (attempt.problem != nullptr) {
      report(attempt.problem, attempt.detail != nullptr ? attempt.detail : "",
             "; every call goes to NCCL");
    }
    return usable(result);
  }
  return usable(known);
}

const Engine* engine_if_open() { return usable(opened.load(std::memory_order_acquire)); }

}  // namespace shunt::preload
