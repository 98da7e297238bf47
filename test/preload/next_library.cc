// A library that replaces a function and finds the original with RTLD_NEXT, twice, as malloc and
// I/O tracers do. probe_next(name) says which file RTLD_NEXT leads to from here.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern "C" [[gnu::visibility("default")]] const char* probe_next(const char* name) {
  static char text[600];
  void* first = dlsym(RTLD_NEXT, name);
  void* second = dlsym(RTLD_NEXT, name);
  Dl_info info{};
  if (first == nullptr || dladdr(first, &info) == 0) info.dli_fname = "none";
  snprintf(text, sizeof text, "%s %s", info.dli_fname, first == second ? "twice" : "unstable");
  return text;
}

extern "C" [[gnu::visibility("default")]] int probe_marker() { return 1; }
