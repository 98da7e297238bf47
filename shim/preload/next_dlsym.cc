#include "shim/preload/next_dlsym.h"

#include <dlfcn.h>

#include <atomic>

namespace shunt::preload {
namespace {

// The oldest version of dlsym on each processor: every glibc has it. Asking for a newer one first
// would make older glibcs build an error message, which allocates.
#if defined(__x86_64__)
constexpr char kDlsymVersion[] = "GLIBC_2.2.5";
#elif defined(__aarch64__)
constexpr char kDlsymVersion[] = "GLIBC_2.17";
#endif

std::atomic<DlsymFn> next{nullptr};

void* no_dlsym(void*, const char*) { return nullptr; }

DlsymFn find() {
  void* libc = dlvsym(RTLD_NEXT, "dlsym", kDlsymVersion);
  if (libc == nullptr) libc = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
  if (libc == nullptr) return no_dlsym;
  // Through libc's own dlsym, which no tool replaces: whoever comes right behind us, versioned or
  // not.
  void* behind = reinterpret_cast<DlsymFn>(libc)(RTLD_NEXT, "dlsym");
  return reinterpret_cast<DlsymFn>(behind != nullptr ? behind : libc);
}

}  // namespace

DlsymFn next_dlsym() {
  DlsymFn known = next.load(std::memory_order_acquire);
  if (known != nullptr) [[likely]]
    return known;
  known = find();
  next.store(known, std::memory_order_release);  // every thread finds the same
  return known;
}

}  // namespace shunt::preload
