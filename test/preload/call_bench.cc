// What a call costs on its way through the preloaded file and an engine that only forwards, against
// pncclAllReduce, which goes to the same function directly. LD_PRELOAD=... call_bench LIMIT (ns).
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>

template <typename Call>
static double nanoseconds(Call call) {
  constexpr int kCalls = 20000;
  double best[15];
  for (double& result : best) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const auto end = std::chrono::steady_clock::now();
    result = std::chrono::duration<double, std::nano>(end - begin).count() / kCalls;
  }
  std::sort(std::begin(best), std::end(best));
  return best[7];
}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const double direct = nanoseconds(
      [] { pncclAllReduce(nullptr, nullptr, 1, ncclFloat, ncclSum, nullptr, nullptr); });
  const double hooked =
      nanoseconds([] { ncclAllReduce(nullptr, nullptr, 1, ncclFloat, ncclSum, nullptr, nullptr); });
  printf("direct %.2f ns, preloaded %.2f ns: %.2f ns added, limit %s\n", direct, hooked,
         hooked - direct, arguments[1]);
  return hooked - direct <= atof(arguments[1]) ? 0 : 1;
}
