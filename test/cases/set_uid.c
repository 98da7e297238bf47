// Preloaded behind the library: the process believes that it runs set-uid. A real set-uid program would
// drop LD_PRELOAD, so that a test could only reach the library through /etc/ld.so.preload.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/auxv.h>

__attribute__((visibility("default"))) unsigned long getauxval(unsigned long type) {
  if (type == AT_SECURE) return 1;
  return ((unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval"))(type);
}
