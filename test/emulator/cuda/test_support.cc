#include "test_support.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace emu_test {

Gpu::Gpu(int device) {
  CU(cuInit(0));
  CU(cuDeviceGet(&device_, device));
  CU(cuDevicePrimaryCtxRetain(&context, device_));
  CU(cuCtxPushCurrent(context));
}

Gpu::~Gpu() {
  CUcontext popped = nullptr;
  cuCtxPopCurrent(&popped);
  cuDevicePrimaryCtxRelease(device_);
}

void finish(CUstream stream) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  CUresult result;
  while ((result = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
    if (std::chrono::steady_clock::now() > deadline) FAIL("a stream's work has not ended in 20 s");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  CU(result);
}

void Gate::block(CUstream stream) {
  CU(cuLaunchHostFunc(
      stream,
      [](void* open) {
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (!static_cast<std::atomic<bool>*>(open)->load()) {
          if (std::chrono::steady_clock::now() > deadline) return;
          std::this_thread::yield();
        }
      },
      &open_));
}

Child::Child(const std::string& test_case, const std::vector<std::string>& environment) {
  int to_child[2], from_child[2];
  REQUIRE(pipe2(to_child, O_CLOEXEC) == 0);
  REQUIRE(pipe2(from_child, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, to_child[0], 0);
  posix_spawn_file_actions_adddup2(&files, from_child[1], 1);
  posix_spawn_file_actions_adddup2(&files, from_child[1], 2);
  std::vector<char*> arguments{const_cast<char*>("emulator_test"),
                               const_cast<char*>(test_case.c_str()), nullptr};
  std::vector<char*> variables;
  for (const std::string& variable : environment) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  variables.push_back(nullptr);
  const int failed =
      posix_spawn(&pid_, "/proc/self/exe", &files, nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&files);
  close(to_child[0]);
  close(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
  REQUIRE(failed == 0);
}

Child::~Child() {
  if (pid_ > 0) {
    kill();
    waitpid(pid_, nullptr, 0);
  }
  close(in_);
  close(out_);
}

void Child::kill() { ::kill(pid_, SIGKILL); }

Outcome Child::wait() {
  Outcome outcome{};
  char buffer[4096];
  for (ssize_t got; (got = ::read(out_, buffer, sizeof(buffer))) > 0;) {
    outcome.output.append(buffer, static_cast<size_t>(got));
  }
  int status = 0;
  REQUIRE(waitpid(pid_, &status, 0) == pid_);
  pid_ = -1;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

void Child::write(const void* data, size_t bytes) {
  REQUIRE(::write(in_, data, bytes) == static_cast<ssize_t>(bytes));
}

void Child::read(void* data, size_t bytes) {
  size_t have = 0;
  while (have < bytes) {
    const ssize_t got = ::read(out_, static_cast<char*>(data) + have, bytes - have);
    REQUIRE(got > 0);
    have += static_cast<size_t>(got);
  }
}

Outcome run_case(const std::string& test_case, const std::vector<std::string>& environment) {
  return Child(test_case, environment).wait();
}

}  // namespace emu_test
