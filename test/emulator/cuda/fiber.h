// Fibers: one for each emulated thread. A fiber that is given up is never unwound, as device code
// has nothing to destroy; its stack simply goes back to the pool.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <vector>

namespace emu {

// Stacks of one kernel, taken from a pool that never shrinks.
class Stacks {
 public:
  explicit Stacks(size_t count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  static constexpr size_t kBytes = 32 * 1024;
  void* top(size_t index) const { return tops_[index]; }

 private:
  std::vector<void*> tops_;
};

class Fiber {
 public:
  // `body` may end only by switching out for ever.
  Fiber(void* stack_top, void (*body)(boost::context::detail::transfer_t))
      : context_(boost::context::detail::make_fcontext(stack_top, Stacks::kBytes, body)) {}

  // From the scheduler: runs the fiber until it switches out.
  void resume(void* argument) {
    context_ = boost::context::detail::jump_fcontext(context_, argument).fctx;
  }

 private:
  boost::context::detail::fcontext_t context_;
};

}  // namespace emu
