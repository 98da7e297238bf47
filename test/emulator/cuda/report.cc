#include "report.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "settings.h"

namespace emu {
namespace {

enum class State { kFresh, kRunning, kForked, kExiting };
std::atomic<State> process_state{State::kFresh};
std::atomic<int> misuses{0};
thread_local bool in_host_function = false;

void print_misuses() {
  if (misuses > 0 && settings().strict) {
    std::fprintf(stderr, "emulated cuda: %d misuses\n", misuses.load());
  }
}

void report(const char* format, va_list arguments) {
  char line[1024];
  std::vsnprintf(line, sizeof(line), format, arguments);
  std::fprintf(stderr, "emulated cuda: %s\n", line);
  if (misuses.fetch_add(1) == 0) std::atexit(print_misuses);
}

// One write() a line: several processes append to one file.
void append_to_trace(const char* text) {
  static const int file =
      settings().trace.empty()
          ? -1
          : ::open(settings().trace.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  char line[512];
  const int length = std::snprintf(line, sizeof(line), "%d %s\n", getpid(), text);
  if (::write(file, line, static_cast<size_t>(length)) != length) return;  // a full disk is no test
}

}  // namespace

void fail(CUresult code) { throw Failure{code}; }

void note_misuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(format, arguments);
  va_end(arguments);
}

void misuse(CUresult code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(format, arguments);
  va_end(arguments);
  fail(code);
}

void initialize_process() {
  State expected = State::kFresh;
  if (!process_state.compare_exchange_strong(expected, State::kRunning)) return;
  // CUDA does not survive fork(): whatever lock a parent's thread held stays held in the child, so
  // the child must be turned away before it takes any.
  pthread_atfork(nullptr, nullptr, [] {
    if (process_state == State::kRunning) process_state = State::kForked;
  });
  // Kernels that still spin see this and end; detached workers die with the process.
  std::atexit([] { process_state = State::kExiting; });
}

CUresult state_of_process() {
  switch (process_state.load()) {
    case State::kRunning:
      if (!in_host_function) return CUDA_SUCCESS;
      note_misuse("a call of the driver from inside a function of cuLaunchHostFunc");
      return CUDA_ERROR_NOT_PERMITTED;
    case State::kExiting:
      return CUDA_ERROR_DEINITIALIZED;
    case State::kFresh:
    case State::kForked:
      break;
  }
  return CUDA_ERROR_NOT_INITIALIZED;
}

void run_host_function(CUhostFn function, void* argument) {
  in_host_function = true;
  function(argument);
  in_host_function = false;
}

bool exiting() { return process_state == State::kExiting; }

void trace(const char* name, CUresult result) {
  if (settings().trace.empty()) return;
  append_to_trace((std::string(name) + " = " + std::to_string(result)).c_str());
}

void trace_note(const char* format, ...) {
  if (settings().trace.empty()) return;
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  append_to_trace(line);
}

}  // namespace emu
