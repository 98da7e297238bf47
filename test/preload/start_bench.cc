// What preloading costs a short program: start_bench LIBRARY LIMIT. Starts /bin/true with and
// without the library in turn, so that both see the same noise, and compares the medians; fails
// above LIMIT.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

static double start(char* const* environment) {
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  const auto begin = std::chrono::steady_clock::now();
  pid_t child = 0;
  if (posix_spawn(&child, "/bin/true", nullptr, nullptr, arguments, environment) != 0) abort();
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) abort();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

static double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

int main(int count, char** arguments) {
  if (count != 3) return 2;
  std::string preload = std::string("LD_PRELOAD=") + arguments[1];
  char* with[] = {preload.data(), nullptr};
  char* without[] = {nullptr};
  std::vector<double> times[2];
  for (int i = 0; i < 1000; ++i) {
    const double bare = start(without);
    const double loaded = start(with);
    if (i < 50) continue;  // page cache and clock warm up
    times[0].push_back(bare);
    times[1].push_back(loaded);
  }
  const double ratio = median(times[1]) / median(times[0]);
  printf("/bin/true %.1f us, preloaded %.1f us: ratio %.3f, limit %s\n", median(times[0]),
         median(times[1]), ratio, arguments[2]);
  return ratio <= atof(arguments[2]) ? 0 : 1;
}
