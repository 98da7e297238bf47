// What every entry point goes through: the life of the driver in this process, the trace, misuse
// lines, and Failure, which carries an error code to the C boundary and never across it.
#pragma once

#include <cuda.h>

#include <new>

namespace emu {

struct Failure {
  CUresult code;
};
[[noreturn]] void fail(CUresult code);

// A mistake of the caller that the real driver punishes by a code, by a crash or not at all: one
// line on stderr, counted and summed up at exit (EMU_STRICT).
void note_misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void misuse(CUresult code, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// The driver's life: initialized by cuInit, gone in children of fork() and while the process exits.
void initialize_process();
// Also refuses every call from inside a function of cuLaunchHostFunc.
CUresult state_of_process();
bool exiting();
void run_host_function(CUhostFn function, void* argument);

void trace(const char* name, CUresult result);
// A line of the trace that is not a call, e.g. "lazy-load NAME".
void trace_note(const char* format, ...) __attribute__((format(printf, 1, 2)));

template <typename F>
CUresult call_in_any_state(const char* name, F&& body) noexcept {
  CUresult result;
  try {
    result = body();
  } catch (const Failure& failure) {
    result = failure.code;
  } catch (const std::bad_alloc&) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  trace(name, result);
  return result;
}

// Entry points other than cuInit and those that need no driver.
template <typename F>
CUresult call(const char* name, F&& body) noexcept {
  const CUresult state = state_of_process();
  if (state == CUDA_SUCCESS) return call_in_any_state(name, body);
  trace(name, state);
  return state;
}

}  // namespace emu

// Exports a second name of a function that is defined in the same file. The names go to the linker
// as they stand, since cuda.h makes macros of most old ones; the types of the two may differ on
// purpose.
#define EMU_ALSO_NAMED(other, name) EMU_ALSO_NAMED_(other, name, __LINE__)
#define EMU_ALSO_NAMED_(other, name, line) EMU_ALSO_NAMED__(other, name, line)
#define EMU_ALSO_NAMED__(other, name, line) \
  extern "C" __attribute__((alias(name))) void emu_alias_##line() __asm__(other)
