// Stream capture: which calls it allows, and what becomes of streams and events meanwhile. The
// rules are those of the CUDA Programming Guide, "Creating a Graph Using Stream Capture"
// (prohibited operations, invalidation), and of the descriptions of
// cuThreadExchangeStreamCaptureMode and CUresult 900 to 908. Everything here happens under the
// driver's lock.
#pragma once

#include <cuda.h>

#include <memory>
#include <thread>
#include <vector>

#include "event.h"
#include "graph.h"
#include "stream.h"

namespace emu {

struct Capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  Stream* origin;
  std::shared_ptr<Graph> graph;
  std::vector<StreamPtr> streams{};
  bool invalidated = false;
  bool ended = false;
};

// The calling thread's interaction mode.
CUstreamCaptureMode& thread_capture_mode();

void begin_capture(const StreamPtr& stream, CUstreamCaptureMode mode);
// Null and the reason in *why if the capture came to nothing. Throws if there is nothing to end.
std::shared_ptr<Graph> end_capture(const StreamPtr& stream, CUresult* why);

// For potentially unsafe calls. Prohibited ones invalidate the captures that prohibit them.
void check_unsafe();
// For uses of the legacy stream of `context`: they would depend on its capturing blocking streams.
void check_legacy(Context& context);
// For waits for everything in `context`.
void check_no_capture(Context& context);
// For host-side looks at one stream or event.
void check_not_captured(const Stream& stream);
void check_not_captured(const Event& event);

// Runs `op` on the stream after what the stream must follow, or captures it: then the result is
// null.
WorkPtr submit(const StreamPtr& stream, Op op, std::vector<WorkPtr> dependencies = {});
void record(const std::shared_ptr<Event>& event, const StreamPtr& stream, bool external);
void wait_for(const StreamPtr& stream, const std::shared_ptr<Event>& event, bool external);

}  // namespace emu
