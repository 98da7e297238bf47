#include "fiber.h"

#include <sys/mman.h>

#include <mutex>
#include <new>

namespace emu {
namespace {

struct Pool {
  std::mutex mutex;
  std::vector<void*> tops;
};

Pool& pool() {
  static Pool& instance = *new Pool;
  return instance;
}

// A page that faults lies below each stack: an overflow must not write into a neighbour's.
void* make_stack() {
  constexpr size_t kGuard = 4096;
  void* memory = ::mmap(nullptr, kGuard + Stacks::kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || ::mprotect(memory, kGuard, PROT_NONE) != 0) throw std::bad_alloc();
  return static_cast<char*>(memory) + kGuard + Stacks::kBytes;
}

}  // namespace

Stacks::Stacks(size_t count) {
  tops_.reserve(count);
  {
    std::lock_guard lock(pool().mutex);
    while (tops_.size() < count && !pool().tops.empty()) {
      tops_.push_back(pool().tops.back());
      pool().tops.pop_back();
    }
  }
  while (tops_.size() < count) tops_.push_back(make_stack());
}

Stacks::~Stacks() {
  std::lock_guard lock(pool().mutex);
  pool().tops.insert(pool().tops.end(), tops_.begin(), tops_.end());
}

}  // namespace emu
