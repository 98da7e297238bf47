// Preloaded behind the library: the first call of the libc function SLOW_CALL names, from the engine, takes two
// seconds, which a test uses to fork while the engine is busy. dlinfo: in adopting an NCCL; getcwd: in its start.
#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

extern "C" __attribute__((visibility("default"))) std::atomic<int> slow_calls{0};

namespace {

void be_slow(const char* name) {
  const char* const wanted = std::getenv("SLOW_CALL");
  if (wanted != nullptr && std::strcmp(wanted, name) == 0 && slow_calls.fetch_add(1) == 0) sleep(2);
}

template <typename F>
F* next(F*, const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int dlinfo(void* handle, int request, void* out) noexcept {
  if (request == RTLD_DI_LINKMAP) be_slow("dlinfo");
  return next(&dlinfo, "dlinfo")(handle, request, out);
}

extern "C" __attribute__((visibility("default"))) char* getcwd(char* buffer, size_t bytes) noexcept {
  be_slow("getcwd");
  return next(&getcwd, "getcwd")(buffer, bytes);
}
