#include "capture.h"

#include <algorithm>

#include "context.h"
#include "report.h"

namespace emu {
namespace {

std::vector<std::shared_ptr<Capture>>& captures() {
  static auto& instance = *new std::vector<std::shared_ptr<Capture>>;
  return instance;
}

[[noreturn]] void invalidate(Capture& capture, CUresult code) {
  capture.invalidated = true;
  fail(code);
}

void require_valid(const Capture& capture) {
  if (capture.invalidated) fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// Invalidates every capture that has a stream of `context`, blocking ones only if asked.
bool invalidate_captures_of(Context& context, bool blocking_only) {
  bool any = false;
  for (const auto& capture : captures()) {
    for (const StreamPtr& stream : capture->streams) {
      if (&stream->context() != &context || (blocking_only && !stream->blocking())) continue;
      capture->invalidated = true;
      any = true;
    }
  }
  return any;
}

Node* capture_op(Stream& stream, Op op) {
  require_valid(*stream.capture);
  Node* node = stream.capture->graph->add(stream.context(), std::move(op), stream.capture_tail);
  stream.capture_tail = {node};
  return node;
}

void add_missing(std::vector<Node*>& nodes, const std::vector<Node*>& more) {
  for (Node* node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
}

// The forked streams must have been waited for: nothing of theirs may lie beyond what `origin`
// follows.
bool joined(const Capture& capture) {
  const auto reached = capture.graph->ancestors(capture.origin->capture_tail);
  for (const StreamPtr& stream : capture.streams) {
    for (const Node* node : stream->capture_tail) {
      if (!std::binary_search(reached.begin(), reached.end(), node)) return false;
    }
  }
  return true;
}

Op empty_op(CUgraphNodeType type) {
  return {type, [](const RunInfo&) { return CUDA_SUCCESS; }};
}

}  // namespace

CUstreamCaptureMode& thread_capture_mode() {
  static thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

void begin_capture(const StreamPtr& stream, CUstreamCaptureMode mode) {
  static uint64_t next_id = 1;
  if (stream->legacy()) fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (stream->capture) fail(CUDA_ERROR_ILLEGAL_STATE);
  auto capture = std::make_shared<Capture>(Capture{next_id++, mode, std::this_thread::get_id(),
                                                   stream.get(), std::make_shared<Graph>()});
  capture->streams.push_back(stream);
  stream->capture = capture;
  captures().push_back(capture);
}

std::shared_ptr<Graph> end_capture(const StreamPtr& stream, CUresult* why) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) fail(CUDA_ERROR_ILLEGAL_STATE);
  if (capture->origin != stream.get()) invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    invalidate(*capture, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }
  *why = capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
         : !joined(*capture)  ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                              : CUDA_SUCCESS;
  capture->ended = true;
  for (const StreamPtr& participant : capture->streams) {
    participant->capture = nullptr;
    participant->capture_tail.clear();
    participant->reported_tail.clear();
  }
  capture->streams.clear();
  std::erase(captures(), capture);
  return *why == CUDA_SUCCESS ? capture->graph : nullptr;
}

void check_unsafe() {
  const CUstreamCaptureMode mode = thread_capture_mode();
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return;
  bool prohibited = false;
  for (const auto& capture : captures()) {
    const bool own = capture->thread == std::this_thread::get_id();
    if (own ? capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED
            : mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
                  capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL) {
      continue;
    }
    capture->invalidated = prohibited = true;
  }
  if (prohibited) fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void check_legacy(Context& context) {
  if (invalidate_captures_of(context, true)) fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void check_no_capture(Context& context) {
  if (invalidate_captures_of(context, false)) fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void check_not_captured(const Stream& stream) {
  if (!stream.capture) return;
  require_valid(*stream.capture);
  invalidate(*stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

void check_not_captured(const Event& event) {
  if (event.capture) invalidate(*event.capture, CUDA_ERROR_CAPTURED_EVENT);
}

WorkPtr submit(const StreamPtr& stream, Op op, std::vector<WorkPtr> dependencies) {
  if (stream->capture) {
    capture_op(*stream, std::move(op));
    return nullptr;
  }
  Context& context = stream->context();
  // The legacy stream and the blocking ones of a context wait for each other.
  if (stream->legacy()) {
    check_legacy(context);
    for (const StreamPtr& other : context.streams()) {
      if (other == stream || !other->blocking() || other->idle()) continue;
      dependencies.push_back(other->last());
    }
  } else if (stream->blocking()) {
    if (const WorkPtr last = context.legacy_stream()->last()) dependencies.push_back(last);
  }
  return stream->enqueue(std::move(op.action), std::move(dependencies));
}

void record(const std::shared_ptr<Event>& event, const StreamPtr& stream, bool external) {
  if (stream->capture) {
    require_valid(*stream->capture);
    if (external) {
      capture_op(*stream, empty_op(CU_GRAPH_NODE_TYPE_EVENT_RECORD))->records = event;
      return;
    }
    event->work = nullptr;
    event->capture = stream->capture;
    event->captured = stream->capture_tail;
    return;
  }
  event->capture = nullptr;
  event->captured.clear();
  event->work = submit(stream, empty_op(CU_GRAPH_NODE_TYPE_EVENT_RECORD));
}

void wait_for(const StreamPtr& stream, const std::shared_ptr<Event>& event, bool external) {
  if (stream->capture) {
    Capture& capture = *stream->capture;
    require_valid(capture);
    if (external) {
      capture_op(*stream, empty_op(CU_GRAPH_NODE_TYPE_WAIT_EVENT))->waits = event;
      return;
    }
    if (!event->capture || event->capture->ended) {
      invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    }
    if (event->capture != stream->capture) {
      event->capture->invalidated = true;
      invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    add_missing(stream->capture_tail, event->captured);
    return;
  }
  if (event->capture) {
    Capture& capture = *event->capture;
    if (capture.ended) fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    require_valid(capture);
    if (stream->legacy()) invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    stream->capture = event->capture;
    stream->capture_tail = event->captured;
    capture.streams.push_back(stream);
    return;
  }
  if (event->work == nullptr) return;
  submit(stream, empty_op(CU_GRAPH_NODE_TYPE_WAIT_EVENT), {event->work});
}

}  // namespace emu
