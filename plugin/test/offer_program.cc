// Linked with NCCL, preloaded into: says what NCCL will read when it makes a communicator.
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

int main() {
  if (ncclGroupStart() != ncclSuccess || ncclGroupEnd() != ncclSuccess) return 1;
  const char* const plugin = std::getenv("NCCL_TUNER_PLUGIN");
  std::printf("plugin=%s\n", plugin == nullptr ? "none" : plugin);
  return 0;
}
