// A program that was linked with NCCL. With the argument "fork" a child makes the calls while the
// parent never uses NCCL; "threads": 8 threads make the first calls of the process at once.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/preload/user_calls.h"

static void* in_thread(void*) { return fake(static_cast<unsigned long>(user_calls())); }

int main(int count, char** arguments) {
  const char* mode = count > 1 ? arguments[1] : "";
  if (strcmp(mode, "fork") == 0) {
    const pid_t child = fork();
    if (child == 0) _exit(user_calls());
    int status = 0;
    if (waitpid(child, &status, 0) != child) return 100;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
  }
  if (strcmp(mode, "threads") == 0) {
    pthread_t threads[8];
    for (pthread_t& thread : threads) pthread_create(&thread, nullptr, in_thread, nullptr);
    int failed = 0;
    for (pthread_t& thread : threads) {
      void* result = nullptr;
      pthread_join(thread, &result);
      failed += result != nullptr;
    }
    return failed;
  }
  const int result = user_calls();
  printf("result %d\n", result);
  return result;
}
