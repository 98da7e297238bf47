// What life_lines.c, preloaded into this rank, has counted.
#pragma once

#include <dlfcn.h>

#include <stdexcept>

#include "test/cases/job.h"

namespace cases {

enum class Line { kAny, kIpcOpen, kAllocation, kLaunch, kOperation };

inline const unsigned long* life_symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) throw std::runtime_error("life_lines is not preloaded");
  return static_cast<const unsigned long*>(found);
}

inline unsigned long lines(Line kind) {
  return __atomic_load_n(&life_symbol("life_counters")[static_cast<int>(kind)], __ATOMIC_RELAXED);
}
// The line at which NCCL operation `index` of this process began.
inline unsigned long line_of_operation(unsigned index) {
  return life_symbol("life_operation_lines")[index];
}

// Environment of a rank in which lines are counted.
inline Environment counted() {
  return {{"LD_PRELOAD", std::string(CASES_PRELOAD) + ":" + CASES_LIFE_LINES},
          {"EMU_TRACE", "/dev/null"},
          {"EMU_NCCL_TRACE", "/dev/null"}};
}

}  // namespace cases
