// Entry points: stream capture.
#include <cuda.h>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "report.h"

using namespace emu;

namespace {

CUstreamCaptureStatus status_of(const Stream& stream) {
  if (!stream.capture) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// The legacy stream has no status while a blocking stream of its context captures; asking does no
// harm.
StreamPtr stream_with_status(CUstream handle, const char* caller) {
  StreamPtr stream = stream_of(handle, caller);
  if (!stream->legacy()) return stream;
  for (const StreamPtr& other : stream->context().streams()) {
    if (other->capture && other->blocking()) fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  return stream;
}

CUresult capture_info(const char* caller, CUstream handle, CUstreamCaptureStatus* status,
                      cuuint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,
                      size_t* count) {
  const Lock lock = lock_driver();
  const StreamPtr stream = stream_with_status(handle, caller);
  *status = status_of(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  stream->reported_tail.clear();
  for (Node* node : stream->capture_tail) stream->reported_tail.push_back(node->handle());
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(stream->capture->graph.get());
  if (dependencies != nullptr) *dependencies = stream->reported_tail.data();
  if (count != nullptr) *count = stream->reported_tail.size();
  return CUDA_SUCCESS;
}

CUresult update_dependencies(const char* caller, CUstream handle, CUgraphNode* nodes, size_t count,
                             unsigned flags) {
  const Lock lock = lock_driver();
  const StreamPtr stream = stream_of(handle, caller);
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  for (size_t i = 0; i < count; ++i) {
    stream->capture_tail.push_back(reinterpret_cast<Node*>(nodes[i]));
  }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  return call("cuStreamBeginCapture_v2", [&] {
    const Lock lock = lock_driver();
    begin_capture(stream_of(handle, "cuStreamBeginCapture_v2"), mode);
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuStreamBeginCapture", "cuStreamBeginCapture_v2");

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  return call("cuStreamEndCapture", [&] {
    *graph = nullptr;
    const Lock lock = lock_driver();
    CUresult why = CUDA_SUCCESS;
    std::shared_ptr<Graph> captured = end_capture(stream_of(handle, "cuStreamEndCapture"), &why);
    if (captured) *graph = live_graphs().add(std::move(captured));
    return why;
  });
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return call("cuThreadExchangeStreamCaptureMode", [&] {
    if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::swap(*mode, thread_capture_mode());
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return call("cuStreamIsCapturing", [&] {
    const Lock lock = lock_driver();
    *status = status_of(*stream_with_status(handle, "cuStreamIsCapturing"));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   size_t* count) {
  return call("cuStreamGetCaptureInfo_v2", [&] {
    return capture_info("cuStreamGetCaptureInfo_v2", handle, status, id, graph, dependencies,
                        count);
  });
}

CUresult cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** dependencies,
                                   const CUgraphEdgeData** edges, size_t* count) {
  return call("cuStreamGetCaptureInfo_v3", [&] {
    if (edges != nullptr) *edges = nullptr;
    return capture_info("cuStreamGetCaptureInfo_v3", handle, status, id, graph, dependencies,
                        count);
  });
}

// The oldest form, which the header no longer declares under its name.
CUresult emu_stream_get_capture_info_v1(CUstream, CUstreamCaptureStatus*,
                                        cuuint64_t*) __asm__("cuStreamGetCaptureInfo");
CUresult emu_stream_get_capture_info_v1(CUstream handle, CUstreamCaptureStatus* status,
                                        cuuint64_t* id) {
  return call("cuStreamGetCaptureInfo", [&] {
    return capture_info("cuStreamGetCaptureInfo", handle, status, id, nullptr, nullptr, nullptr);
  });
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* nodes,
                                              const CUgraphEdgeData* /*edges*/, size_t count,
                                              unsigned flags) {
  return call("cuStreamUpdateCaptureDependencies_v2", [&] {
    return update_dependencies("cuStreamUpdateCaptureDependencies_v2", handle, nodes, count, flags);
  });
}

CUresult emu_stream_update_capture_dependencies_v1(
    CUstream, CUgraphNode*, size_t, unsigned) __asm__("cuStreamUpdateCaptureDependencies");
CUresult emu_stream_update_capture_dependencies_v1(CUstream handle, CUgraphNode* nodes,
                                                   size_t count, unsigned flags) {
  return call("cuStreamUpdateCaptureDependencies", [&] {
    return update_dependencies("cuStreamUpdateCaptureDependencies", handle, nodes, count, flags);
  });
}

}  // extern "C"
