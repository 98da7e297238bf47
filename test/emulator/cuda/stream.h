// Streams: a queue and one worker thread each, started with the first work. Workers are detached
// and everything that they touch outlives them, so the process can exit at any time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "work.h"

namespace emu {

struct Context;
struct Capture;
struct Node;

// Where an operation finds itself when it runs.
struct RunInfo {
  Context& context;
  bool in_graph;
};
using Action = std::function<CUresult(const RunInfo&)>;

// What an API call puts on a stream or, while the stream captures, into a graph.
struct Op {
  CUgraphNodeType type;
  Action action;
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Context& context, unsigned flags, int priority, bool legacy);

  // Runs `action` after everything queued before and after `dependencies`.
  WorkPtr enqueue(Action action, std::vector<WorkPtr> dependencies);
  // The newest work; null if there never was any.
  WorkPtr last() const;
  // No more work will come; what is queued still runs.
  void close();
  bool idle() const;
  bool closed() const;

  Context& context() { return context_; }
  bool legacy() const { return legacy_; }
  bool blocking() const { return (flags_ & CU_STREAM_NON_BLOCKING) == 0; }
  unsigned flags() const { return flags_; }
  int priority() const { return priority_; }
  uint64_t id() const { return id_; }

  // Under the driver's lock: the capture that this stream takes part in, and what its next node
  // follows.
  std::shared_ptr<Capture> capture;
  std::vector<Node*> capture_tail;
  std::vector<CUgraphNode> reported_tail;  // what cuStreamGetCaptureInfo last pointed to

 private:
  struct Entry {
    Action action;
    std::vector<WorkPtr> dependencies;
    WorkPtr work;
  };
  void work_loop();
  void execute(Entry& entry);

  Context& context_;
  const unsigned flags_;
  const int priority_;
  const bool legacy_;
  const uint64_t id_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Entry> queue_;
  WorkPtr last_;
  bool started_ = false;
  bool closed_ = false;
};
using StreamPtr = std::shared_ptr<Stream>;

// A detached thread named `name` that takes no signals, which belong to the program's own threads.
void start_thread(const char* name, std::function<void()> body);

}  // namespace emu
