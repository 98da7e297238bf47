#include "shim/engine/nccl_library.h"

#include <dlfcn.h>
#include <link.h>

#include <mutex>
#include <new>

#include "shim/engine/fork_safe.h"
#include "shim/engine/log.h"

namespace shunt {

constinit thread_local const NcclLibrary* inside_library = nullptr;

namespace {

ForkSafeMutex mutex;
NcclLibrary* libraries[kMaxLibraries] = {};  // never freed: wrappers may be called while exiting

// A handle on the module at `info`. The main program (a statically linked NCCL) has no file to open.
void* open_module(const Dl_info& info) {
  void* handle = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
  link_map* map = nullptr;
  if (handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 &&
      reinterpret_cast<const void*>(map->l_addr) == info.dli_fbase) {
    return handle;
  }
  if (handle != nullptr) dlclose(handle);
  return dlopen(nullptr, RTLD_LAZY);
}

NcclLibrary* adopt(const Dl_info& info) {
  void* handle = open_module(info);
  if (handle == nullptr || dlsym(handle, "pncclAllReduce") == nullptr) return nullptr;
  int slot = 0;
  while (slot < kMaxLibraries && libraries[slot] != nullptr) ++slot;
  if (slot == kMaxLibraries) {
    log_warning("%s is one NCCL library too many (%d are known): its calls are left alone",
                info.dli_fname, kMaxLibraries);
    return nullptr;
  }
  auto* library = new NcclLibrary;
  library->slot = slot;
  library->base = info.dli_fbase;
  library->path = info.dli_fname;
#define SHUNT_FIND_REAL(name) library->real[k_##name] = dlsym(handle, "p" #name);
  SHUNT_HOOKS(SHUNT_FIND_REAL)
#undef SHUNT_FIND_REAL
  const auto find = [&]<typename F>(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    return function != nullptr;
  };
  decltype(&::ncclGetVersion) get_version = nullptr;
  if (!find("pncclCommCount", library->comm_count) ||
      !find("pncclCommUserRank", library->comm_user_rank) ||
      !find("pncclCommCuDevice", library->comm_cu_device) ||
      !find("pncclGetErrorString", library->error_string) ||
      !find("pncclGetVersion", get_version) || get_version(&library->version) != ncclSuccess) {
    log_warning("%s lacks functions that every NCCL has: its calls are left alone", info.dli_fname);
    delete library;
    return nullptr;
  }
  fill_wrappers(*library);
  libraries[slot] = library;
  log_debug("NCCL %d.%d.%d: %s", library->version / 10000, library->version / 100 % 100,
            library->version % 100, library->path.c_str());
  return library;
}

}  // namespace

NcclLibrary* library_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  std::lock_guard lock(mutex);
  for (NcclLibrary* library : libraries) {
    if (library != nullptr && library->base == info.dli_fbase) return library;
  }
  return adopt(info);
}

}  // namespace shunt
