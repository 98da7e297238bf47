// Preloaded: the monotonic clock of the process runs CASES_CLOCK_SLOWER times slower. What has a deadline
// of seconds can then be tried on a machine that is so loaded that it would need longer: a deadline that
// is met all the same is a hang. Sleeps last as long as ever.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long long slower;

__attribute__((constructor)) static void read_factor(void) {
  const char* text = getenv("CASES_CLOCK_SLOWER");
  const long long factor = text == NULL ? 0 : atoll(text);
  if (factor < 1) {
    fprintf(stderr, "CASES_CLOCK_SLOWER must be a number from 1 on\n");
    abort();
  }
  slower = factor;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec* now) {
  const long failed = syscall(SYS_clock_gettime, clock, now);
  if (failed != 0 || clock != CLOCK_MONOTONIC || slower <= 1) return (int)failed;
  const long long ns = (now->tv_sec * 1000000000ll + now->tv_nsec) / slower;
  now->tv_sec = ns / 1000000000ll;
  now->tv_nsec = ns % 1000000000ll;
  return 0;
}
