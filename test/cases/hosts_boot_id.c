// Preloaded behind the library: /proc/sys/kernel/random/boot_id reads as the file HOSTS_BOOT_ID
// names, so that ranks of one machine look like ranks of several.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* instead_of(const char* path) {
  const char* other = getenv("HOSTS_BOOT_ID");
  return other != NULL && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? other : path;
}

#define REPLACE_FOPEN(name)                                                               \
  __attribute__((visibility("default"))) FILE* name(const char* path, const char* mode) { \
    FILE* (*real)(const char*, const char*) =                                             \
        (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, #name);                   \
    return real(instead_of(path), mode);                                                  \
  }
REPLACE_FOPEN(fopen)
REPLACE_FOPEN(fopen64)

#define REPLACE_OPEN(name)                                                                    \
  __attribute__((visibility("default"))) int name(const char* path, int flags, ...) {         \
    va_list arguments;                                                                        \
    va_start(arguments, flags);                                                               \
    const int mode = va_arg(arguments, int);                                                  \
    va_end(arguments);                                                                        \
    return ((int (*)(const char*, int, int))dlsym(RTLD_NEXT, #name))(instead_of(path), flags, \
                                                                     mode);                   \
  }
REPLACE_OPEN(open)
REPLACE_OPEN(open64)
