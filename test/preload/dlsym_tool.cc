// A preloaded tool that has its own dlsym, as profilers have: it traces the names that the tests
// look up and passes on to the next dlsym by a tail call. It finds that one with dlvsym, or, built
// with TOOL_UNVERSIONED, in the way of tools that take whatever comes next.
#include <dlfcn.h>

#include <atomic>

#include "test/preload/trace.h"

#if !defined(__OPTIMIZE__)
#pragma GCC optimize("O2")  // the tail call keeps RTLD_NEXT relative to the caller
#endif

using Dlsym = void* (*)(void*, const char*) noexcept;  // else no tail call from a noexcept function

#if defined(__aarch64__)
constexpr char kVersion[] = "GLIBC_2.17";
#else
constexpr char kVersion[] = "GLIBC_2.2.5";
#endif

static std::atomic<Dlsym> next{nullptr};

[[gnu::noinline]] static Dlsym find_next() {
  void* found = dlvsym(RTLD_NEXT, "dlsym", kVersion);
#if defined(TOOL_UNVERSIONED)
  found = reinterpret_cast<Dlsym>(found)(RTLD_NEXT, "dlsym");
#endif
  next.store(reinterpret_cast<Dlsym>(found));
  return next.load();
}

extern "C" [[gnu::visibility("default")]] void* dlsym(void* handle, const char* name) noexcept {
  Dlsym pass = next.load();
  if (pass == nullptr) pass = find_next();
  if (strncmp(name, "nccl", 4) == 0 || strncmp(name, "probe", 5) == 0) trace("tool", name);
  return pass(handle, name);
}
