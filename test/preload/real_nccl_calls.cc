// A program linked with a real NCCL, compiled against that version's own nccl.h: calls every hooked function
// with nothing in its arguments and prints what NCCL makes of it, then tries to make a communicator where no
// GPU is. Each call runs in a child, since some versions do not survive it.
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/hooks_of_version.h"

template <typename F>
static void in_child(const char* name, F call) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    printf("%s %d", name, static_cast<int>(call()));
    printf(": %s\n", ncclGetLastError(nullptr));
    fflush(stdout);
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) == child && status != 0) printf("%s ended with %#x\n", name, status);
}

template <typename Result, typename... Arguments>
static Result call_with_nothing(Result (*function)(Arguments...)) {
  return function(Arguments{}...);
}

int main() {
  int version = 0;
  printf("version %d %d\n", static_cast<int>(ncclGetVersion(&version)), version);
  if (version != NCCL_VERSION_CODE) return 1;
  for (int i = 0; i <= 9; ++i) printf("%d %s\n", i, ncclGetErrorString(static_cast<ncclResult_t>(i)));
#define CALL(name) in_child(#name, [] { return call_with_nothing(&name); });
  SHUNT_HOOKS(CALL)
#undef CALL
  in_child("group", [] {
    ncclGroupStart();
    ncclAllReduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, nullptr, nullptr);
    return ncclGroupEnd();
  });
  in_child("no GPU", [] {
    ncclUniqueId id;
    const ncclResult_t named = ncclGetUniqueId(&id);
    if (named != ncclSuccess) return named;
    ncclComm_t comm = nullptr;
    return ncclCommInitRank(&comm, 2, id, 0);
  });
  return 0;
}
