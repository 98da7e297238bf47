// Entry points: streams, host functions.
#include <cuda.h>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "report.h"

using namespace emu;

namespace {

CUresult create_stream(CUstream* handle, unsigned flags, int priority) {
  if (handle == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context& context = current_context();
  const Lock lock = lock_driver();
  auto stream = std::make_shared<Stream>(context, flags, priority, false);
  context.add_stream(stream);
  *handle = live_streams().add(stream);
  return CUDA_SUCCESS;
}

// The newest work of a stream that the host looks at; null if there is none.
WorkPtr observed(CUstream handle, const char* caller) {
  const Lock lock = lock_driver();
  const StreamPtr stream = stream_of(handle, caller);
  check_not_captured(*stream);
  if (stream->legacy()) check_legacy(stream->context());
  check_unsafe();
  return stream->last();
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return call("cuStreamCreate", [&] { return create_stream(stream, flags, 0); });
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return call("cuStreamCreateWithPriority", [&] { return create_stream(stream, flags, priority); });
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  return call("cuStreamDestroy_v2", [&] {
    const Lock lock = lock_driver();
    const StreamPtr stream = live_streams().remove(handle, "cuStreamDestroy_v2");
    if (stream->capture) {
      note_misuse("cuStreamDestroy_v2: the stream is capturing");
      stream->capture->invalidated = true;
    }
    stream->close();
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuStreamDestroy", "cuStreamDestroy_v2");

CUresult cuStreamQuery(CUstream handle) {
  return call("cuStreamQuery", [&] {
    const WorkPtr work = observed(handle, "cuStreamQuery");
    if (work == nullptr) return CUDA_SUCCESS;
    return work->done() ? work->result() : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return call("cuStreamSynchronize", [&] {
    const WorkPtr work = observed(handle, "cuStreamSynchronize");
    if (work == nullptr) return CUDA_SUCCESS;
    work->wait();
    return work->result();
  });
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  return call("cuStreamWaitEvent", [&] {
    const Lock lock = lock_driver();
    wait_for(stream_of(handle, "cuStreamWaitEvent"), live_events().find(event, "cuStreamWaitEvent"),
             (flags & CU_EVENT_WAIT_EXTERNAL) != 0);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return call("cuStreamGetId", [&] {
    const Lock lock = lock_driver();
    const StreamPtr stream = stream_of(handle, "cuStreamGetId");
    // The documentation does not say so; driver 580 ended captures of streams that were asked.
    check_not_captured(*stream);
    *id = stream->id();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return call("cuStreamGetCtx", [&] {
    const Lock lock = lock_driver();
    *context = stream_of(handle, "cuStreamGetCtx")->context().handle();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return call("cuStreamGetDevice", [&] {
    const Lock lock = lock_driver();
    *device = stream_of(handle, "cuStreamGetDevice")->context().ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  return call("cuStreamGetFlags", [&] {
    const Lock lock = lock_driver();
    *flags = stream_of(handle, "cuStreamGetFlags")->flags();
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  return call("cuStreamGetPriority", [&] {
    const Lock lock = lock_driver();
    *priority = stream_of(handle, "cuStreamGetPriority")->priority();
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* argument) {
  return call("cuLaunchHostFunc", [&] {
    if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const Lock lock = lock_driver();
    submit(stream_of(handle, "cuLaunchHostFunc"), {CU_GRAPH_NODE_TYPE_HOST, [=](const RunInfo&) {
                                                     run_host_function(function, argument);
                                                     return CUDA_SUCCESS;
                                                   }});
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
