// Entry points: events.
#include <cuda.h>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "report.h"

using namespace emu;

namespace {

CUresult record_event(const char* caller, CUevent handle, CUstream stream_handle, unsigned flags) {
  const Lock lock = lock_driver();
  const std::shared_ptr<Event>& event = live_events().find(handle, caller);
  const StreamPtr stream = stream_of(stream_handle, caller);
  if (&event->context != &stream->context()) {
    misuse(CUDA_ERROR_INVALID_HANDLE, "%s: the event is of GPU %d, the stream of GPU %d", caller,
           event->context.gpu, stream->context().gpu);
  }
  record(event, stream, (flags & CU_EVENT_RECORD_EXTERNAL) != 0);
  return CUDA_SUCCESS;
}

// What an event that the host looks at marks; null: nothing, so it has happened.
WorkPtr observed(CUevent handle, const char* caller) {
  const Lock lock = lock_driver();
  const std::shared_ptr<Event>& event = live_events().find(handle, caller);
  if (event->context.sticky() != CUDA_SUCCESS) fail(event->context.sticky());
  check_not_captured(*event);
  check_unsafe();
  return event->work;
}

WorkPtr timed(CUevent handle) {
  const Lock lock = lock_driver();
  const std::shared_ptr<Event>& event = live_events().find(handle, "cuEventElapsedTime");
  check_not_captured(*event);
  if ((event->flags & CU_EVENT_DISABLE_TIMING) != 0 || event->work == nullptr) {
    fail(CUDA_ERROR_INVALID_HANDLE);
  }
  return event->work;
}

}  // namespace

extern "C" {

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  return call("cuEventCreate", [&] {
    Context& context = current_context();
    const Lock lock = lock_driver();
    *handle = live_events().add(std::make_shared<Event>(Event{context, flags}));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return call("cuEventDestroy_v2", [&] {
    const Lock lock = lock_driver();
    live_events().remove(handle, "cuEventDestroy_v2");
    return CUDA_SUCCESS;
  });
}
EMU_ALSO_NAMED("cuEventDestroy", "cuEventDestroy_v2");

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call("cuEventRecord", [&] { return record_event("cuEventRecord", event, stream, 0); });
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return call("cuEventRecordWithFlags",
              [&] { return record_event("cuEventRecordWithFlags", event, stream, flags); });
}

CUresult cuEventQuery(CUevent event) {
  return call("cuEventQuery", [&] {
    const WorkPtr work = observed(event, "cuEventQuery");
    if (work == nullptr) return CUDA_SUCCESS;
    return work->done() ? work->result() : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return call("cuEventSynchronize", [&] {
    const WorkPtr work = observed(event, "cuEventSynchronize");
    if (work == nullptr) return CUDA_SUCCESS;
    work->wait();
    return work->result();
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return call("cuEventElapsedTime_v2", [&] {
    const WorkPtr from = timed(start);
    const WorkPtr to = timed(end);
    if (!from->done() || !to->done()) return CUDA_ERROR_NOT_READY;
    const auto ns = static_cast<int64_t>(to->finished_ns() - from->finished_ns());
    *milliseconds = static_cast<float>(static_cast<double>(ns) * 1e-6);
    return to->result();
  });
}
EMU_ALSO_NAMED("cuEventElapsedTime", "cuEventElapsedTime_v2");

}  // extern "C"
