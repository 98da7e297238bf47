#include "test/emulator/nccl/stream_order.h"

#include <algorithm>

#include "test/emulator/nccl/driver.h"

namespace emu_nccl {

ncclResult_t capture_state(CUstream stream, CaptureState* state) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  EMU_NCCL_TRY(
      check(cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr),
            "cuStreamGetCaptureInfo"));
  state->active = status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  state->id = state->active ? id : 0;
  return ncclSuccess;
}

ncclResult_t StreamOrder::create() {
  EMU_NCCL_TRY(check(cuEventCreate(&newest_, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  return check(cuEventCreate(&join_, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

void StreamOrder::destroy() {
  if (newest_) cuEventDestroy(newest_);
  if (join_) cuEventDestroy(join_);
  for (auto& [id, captured] : captures_) cuEventDestroy(captured.event);
  newest_ = join_ = nullptr;
  captures_.clear();
}

// Nobody says when a capture has ended: the events of the latest few are kept.
ncclResult_t StreamOrder::captured_event(cuuint64_t id, CUevent* event, bool* fresh) {
  constexpr size_t kKept = 16;
  auto found = captures_.find(id);
  *fresh = found == captures_.end();
  if (*fresh) {
    if (captures_.size() >= kKept) {
      const auto oldest = std::min_element(
          captures_.begin(), captures_.end(),
          [](const auto& a, const auto& b) { return a.second.age < b.second.age; });
      cuEventDestroy(oldest->second.event);
      captures_.erase(oldest);
    }
    CUevent made = nullptr;
    EMU_NCCL_TRY(check(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
    found = captures_.emplace(id, Captured{made, 0}).first;
  }
  found->second.age = ++ages_;
  *event = found->second.event;
  return ncclSuccess;
}

ncclResult_t StreamOrder::enter(const std::vector<CUstream>& streams, const CaptureState& capture) {
  const CUstream first = streams.front();
  CUevent before = newest_;
  unsigned flags = CU_EVENT_WAIT_DEFAULT;
  if (capture.active) {
    bool fresh = false;
    EMU_NCCL_TRY(captured_event(capture.id, &before, &fresh));
    if (fresh) {
      before = newest_;
      flags = CU_EVENT_WAIT_EXTERNAL;
    }
  }
  EMU_NCCL_TRY(check(cuStreamWaitEvent(first, before, flags), "cuStreamWaitEvent"));
  for (size_t i = 1; i < streams.size(); ++i) {
    EMU_NCCL_TRY(check(cuEventRecord(join_, streams[i]), "cuEventRecord"));
    EMU_NCCL_TRY(
        check(cuStreamWaitEvent(first, join_, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent"));
  }
  return ncclSuccess;
}

ncclResult_t StreamOrder::leave(const std::vector<CUstream>& streams, const CaptureState& capture) {
  const CUstream first = streams.front();
  CUevent after = newest_;
  if (capture.active) {
    bool fresh = false;
    EMU_NCCL_TRY(captured_event(capture.id, &after, &fresh));
    EMU_NCCL_TRY(check(cuEventRecordWithFlags(newest_, first, CU_EVENT_RECORD_EXTERNAL),
                       "cuEventRecordWithFlags"));
  }
  EMU_NCCL_TRY(check(cuEventRecord(after, first), "cuEventRecord"));
  for (size_t i = 1; i < streams.size(); ++i)
    EMU_NCCL_TRY(
        check(cuStreamWaitEvent(streams[i], after, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent"));
  return ncclSuccess;
}

ncclResult_t StreamOrder::drain() {
  return newest_ ? check(cuEventSynchronize(newest_), "cuEventSynchronize") : ncclSuccess;
}

}  // namespace emu_nccl
