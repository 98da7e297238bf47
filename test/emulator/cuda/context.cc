#include "context.h"

#include <algorithm>

#include "memory.h"
#include "report.h"

namespace emu {
namespace {

std::vector<std::unique_ptr<Context>>& contexts() {
  static auto& instance = *[] {
    auto* all = new std::vector<std::unique_ptr<Context>>;
    for (int gpu : visible_gpus()) {
      all->push_back(std::make_unique<Context>(static_cast<int>(all->size()), gpu));
    }
    return all;
  }();
  return instance;
}

}  // namespace

void Context::fault(CUresult code) {
  int none = CUDA_SUCCESS;
  sticky_.compare_exchange_strong(none, code);
}

void Context::retain() {
  static std::atomic<unsigned long long> next_id{1};
  if (retained_++ == 0) id_ = next_id++;
}

void Context::release() {
  if (retained_ == 0) fail(CUDA_ERROR_INVALID_CONTEXT);
  if (--retained_ == 0) clear();
}

void Context::reset() {
  if (retained_.exchange(0) == 0) return;
  clear();
  sticky_ = CUDA_SUCCESS;
}

void Context::clear() {
  wait_idle();
  {
    std::lock_guard lock(mutex_);
    streams_.clear();
    peers_.clear();
    legacy_ = nullptr;
  }
  release_all(*this);
}

bool Context::has_peer(int peer_gpu) const {
  std::lock_guard lock(mutex_);
  return peers_.count(peer_gpu) != 0;
}

void Context::enable_peer(int peer_gpu) {
  std::lock_guard lock(mutex_);
  if (!peers_.insert(peer_gpu).second) fail(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

void Context::add_stream(const StreamPtr& stream) {
  std::lock_guard lock(mutex_);
  // The legacy stream and wait_idle() still wait for what a destroyed stream has queued.
  std::erase_if(streams_, [](const StreamPtr& s) { return s->closed() && s->idle(); });
  streams_.push_back(stream);
}

std::vector<StreamPtr> Context::streams() const {
  std::lock_guard lock(mutex_);
  return streams_;
}

StreamPtr Context::legacy_stream() {
  std::lock_guard lock(mutex_);
  if (legacy_ == nullptr) {
    legacy_ = std::make_shared<Stream>(*this, CU_STREAM_DEFAULT, 0, true);
    streams_.push_back(legacy_);
  }
  return legacy_;
}

void Context::wait_idle() {
  for (const StreamPtr& stream : streams()) {
    if (const WorkPtr work = stream->last()) work->wait();
  }
}

Context& context_of_device(CUdevice device) {
  if (device < 0 || static_cast<size_t>(device) >= contexts().size()) {
    fail(CUDA_ERROR_INVALID_DEVICE);
  }
  return *contexts()[static_cast<size_t>(device)];
}

Context* context_of_handle(CUcontext handle) {
  if (handle == nullptr) return nullptr;
  for (const auto& context : contexts()) {
    if (context->handle() == handle) return context.get();
  }
  misuse(CUDA_ERROR_INVALID_CONTEXT, "%p is no context", static_cast<void*>(handle));
}

std::vector<Context*>& context_stack() {
  // A plain pointer: its thread may call the driver from destructors that run later than ours
  // would.
  static thread_local std::vector<Context*>* stack = new std::vector<Context*>;
  return *stack;
}

Context& current_context() {
  if (context_stack().empty() || context_stack().back() == nullptr)
    fail(CUDA_ERROR_INVALID_CONTEXT);
  Context& context = *context_stack().back();
  if (!context.retained()) {
    misuse(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the current context, of GPU %d, was released",
           context.gpu);
  }
  if (context.sticky() != CUDA_SUCCESS) fail(context.sticky());
  return context;
}

}  // namespace emu
