// A stack and a context that can be left and resumed. Abandoned fibers are simply never resumed:
// device code owns nothing, so nothing leaks. (ucontext makes a system call at every switch.)
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstdint>
#include <memory>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace sim {

class Coroutine {
 public:
  explicit Coroutine(uint32_t number)
      : memory_(new unsigned char[kStackBytes]),
        // Stacks that all start at the same address modulo a page fight for the same cache lines.
        top_(memory_.get() + kStackBytes - number % 61 * 64) {}

  // Begins with body(argument) at the next resume; whatever ran here is forgotten.
  void start(void (*body)(void*), void* argument) {
    body_ = body;
    argument_ = argument;
    context_ = boost::context::detail::make_fcontext(top_, size(), &Coroutine::enter);
  }
  // From outside: runs until it leaves.
  void resume() {
#if defined(__SANITIZE_ADDRESS__)
    void* outside = nullptr;
    __sanitizer_start_switch_fiber(&outside, memory_.get(), size());
#endif
    context_ = boost::context::detail::jump_fcontext(context_, this).fctx;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(outside, nullptr, nullptr);
#endif
  }
  // From inside.
  void leave() {
#if defined(__SANITIZE_ADDRESS__)
    void* inside = nullptr;
    __sanitizer_start_switch_fiber(&inside, outside_bottom_, outside_size_);
#endif
    const auto back = boost::context::detail::jump_fcontext(outside_, nullptr);
    outside_ = back.fctx;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(inside, &outside_bottom_, &outside_size_);
#endif
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kStackBytes = 256 * 1024;
#else
  static constexpr size_t kStackBytes = 24 * 1024;
#endif
  size_t size() const { return static_cast<size_t>(top_ - memory_.get()); }

  static void enter(boost::context::detail::transfer_t from) {
    auto* self = static_cast<Coroutine*>(from.data);
    self->outside_ = from.fctx;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self->outside_bottom_, &self->outside_size_);
#endif
    self->body_(self->argument_);
    for (;;) self->leave();
  }

  std::unique_ptr<unsigned char[]> memory_;
  unsigned char* top_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  boost::context::detail::fcontext_t context_ = nullptr;
  boost::context::detail::fcontext_t outside_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  const void* outside_bottom_ = nullptr;
  size_t outside_size_ = 0;
#endif
};

}  // namespace sim
