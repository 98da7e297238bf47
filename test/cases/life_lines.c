// Preloaded into a rank: sees each line that the stand-ins write to their traces (EMU_TRACE,
// EMU_NCCL_TRACE; /dev/null will do), counts some, and kills the process at a chosen one. Lines
// about polling are left out, so that a number means the same place in every run.
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// All lines; cuIpcOpenMemHandle; cuMemAlloc; kernel launches; operations of NCCL.
enum { kLines, kIpcOpens, kAllocations, kLaunches, kOperations, kKinds };

__attribute__((visibility("default"))) unsigned long life_counters[kKinds];
// Number of the line at which NCCL operation i (from 0) began.
__attribute__((visibility("default"))) unsigned long life_operation_lines[64];

static int has(const char* data, size_t bytes, const char* part) {
  return memmem(data, bytes, part, strlen(part)) != NULL;
}

static void count(int kind) { __atomic_fetch_add(&life_counters[kind], 1, __ATOMIC_RELAXED); }

__attribute__((visibility("default"))) ssize_t write(int file, const void* data, size_t bytes) {
  const char* text = data;
  const ssize_t written = syscall(SYS_write, file, data, bytes);
  if (file <= 2 || has(text, bytes, "Query = ") || has(text, bytes, " cuCtx")) return written;
  const unsigned long line = __atomic_add_fetch(&life_counters[kLines], 1, __ATOMIC_RELAXED);
  if (has(text, bytes, " cuIpcOpenMemHandle")) count(kIpcOpens);
  if (has(text, bytes, " cuMemAlloc")) count(kAllocations);
  if (has(text, bytes, " launch ")) count(kLaunches);
  if (has(text, bytes, "fn=ncclAllReduce ")) {
    const unsigned long at = __atomic_fetch_add(&life_counters[kOperations], 1, __ATOMIC_RELAXED);
    if (at < 64) life_operation_lines[at] = line;
  }
  const char* limit = getenv("LIFE_KILL_AT_LINE");
  if (limit != NULL && line == strtoul(limit, NULL, 10)) kill(getpid(), SIGKILL);
  return written;
}
