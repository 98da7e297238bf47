// Preloaded behind the library: the process believes that it runs set-uid. A real set-uid program would
// drop LD_PRELOAD, so that a test could only reach the library through /etc/ld.so.preload.
#include <dlfcn.h>
#include <sys/auxv.h>

extern "C" __attribute__((visibility("default"))) unsigned long getauxval(unsigned long type) noexcept {
  if (type == AT_SECURE) return 1;
  return reinterpret_cast<decltype(&getauxval)>(dlsym(RTLD_NEXT, "getauxval"))(type);
}
