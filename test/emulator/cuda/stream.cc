#include "stream.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <thread>
#include <utility>

#include "context.h"
#include "report.h"

namespace emu {
namespace {

std::atomic<uint64_t> next_stream_id{1};

}  // namespace

void start_thread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([name, body = std::move(body)] {
      pthread_setname_np(pthread_self(), name);
      prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul,
            0ul);  // naps of kernels are shorter than the 50 us default
      body();
    }).detach();
  } catch (const std::system_error&) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Stream::Stream(Context& context, unsigned flags, int priority, bool legacy)
    : context_(context),
      flags_(flags),
      priority_(priority),
      legacy_(legacy),
      id_(next_stream_id.fetch_add(1)) {}

WorkPtr Stream::enqueue(Action action, std::vector<WorkPtr> dependencies) {
  auto work = std::make_shared<Work>();
  std::lock_guard lock(mutex_);
  if (!started_) {
    start_thread("emu-stream", [self = shared_from_this()] { self->work_loop(); });
    started_ = true;
  }
  queue_.push_back({std::move(action), std::move(dependencies), work});
  last_ = work;
  arrived_.notify_one();
  return work;
}

WorkPtr Stream::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

bool Stream::idle() const {
  const WorkPtr work = last();
  return work == nullptr || work->done();
}

bool Stream::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

void Stream::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  arrived_.notify_one();
}

void Stream::work_loop() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [&] { return closed_ || !queue_.empty(); });
      if (queue_.empty()) return;
      entry = std::move(queue_.front());
      queue_.pop_front();
    }
    execute(entry);
  }
}

void Stream::execute(Entry& entry) {
  for (const WorkPtr& dependency : entry.dependencies) dependency->wait();
  CUresult result = context_.sticky();
  if (result == CUDA_SUCCESS) result = entry.action({context_, false});
  // A fault while this ran ends the context: nothing of it completes with success any more.
  if (context_.sticky() != CUDA_SUCCESS) result = context_.sticky();
  entry.action = nullptr;  // before the end is seen, so that what it holds is gone by then
  entry.work->finish(result);
}

}  // namespace emu
