// Preloaded behind the library under test: driver functions that are named in FAULTY_CALLS (separated by
// commas) fail for whoever looks them up with dlsym; those in FAULTY_DEADLY end the process as kill -9 does.
// FAULTY_GPU, a number, changes the UUID that cuDeviceGetUuid tells, so that two processes on one GPU take it for two.
// NCCL and the CUDA runtime get theirs from cuGetProcAddress, so they go on working.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void* (*Dlsym)(void* handle, const char* name);

static int fail(void) { return 205; }  // CUDA_ERROR_MAP_FAILED

static int die(void) { return kill(getpid(), SIGKILL); }

static int is_in(const char* variable, const char* name) {
  const char* list = getenv(variable);
  const size_t length = strlen(name);
  while (list && *list) {
    const char* end = strchrnul(list, ',');
    if ((size_t)(end - list) == length && memcmp(list, name, length) == 0) return 1;
    list = *end ? end + 1 : end;
  }
  return 0;
}

static Dlsym real_dlsym(void) {
  static const char* const kVersions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (size_t i = 0; i < sizeof kVersions / sizeof *kVersions; ++i) {
    Dlsym found = (Dlsym)dlvsym(RTLD_NEXT, "dlsym", kVersions[i]);
    if (found) return found;
  }
  abort();
}

typedef int (*DeviceUuid)(unsigned char uuid[16], int device);
static DeviceUuid real_uuid;
static int changed_uuid(unsigned char uuid[16], int device) {
  const int result = real_uuid(uuid, device);
  uuid[15] ^= (unsigned char)atoi(getenv("FAULTY_GPU"));
  return result;
}

// Built with optimisation: the last call must be a jump, so that the real dlsym sees the caller's address
// when `handle` is RTLD_NEXT.
__attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) {
  if (is_in("FAULTY_CALLS", name)) return (void*)fail;
  if (is_in("FAULTY_DEADLY", name)) return (void*)die;
  if (getenv("FAULTY_GPU") && strncmp(name, "cuDeviceGetUuid", strlen("cuDeviceGetUuid")) == 0) {
    real_uuid = (DeviceUuid)real_dlsym()(handle, name);
    return real_uuid ? (void*)changed_uuid : 0;
  }
  return real_dlsym()(handle, name);
}
