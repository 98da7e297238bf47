#include "shim/engine/stream_order.h"

#include <algorithm>

namespace shunt {

void StreamOrder::close() noexcept {
  const auto destroy = [](cu::Event event) {
    if (event != nullptr) cu::api().event_destroy(event);
  };
  destroy(by_shunt_);
  destroy(by_nccl_);
  for (const Last& last : captured_) destroy(last.event);
  forget();
}

void StreamOrder::forget() noexcept {
  eager_ = {};
  by_shunt_ = by_nccl_ = nullptr;
  by_all_ = false;
  captured_.clear();
}

cu::Result StreamOrder::locate(cu::Stream stream, Place& place) {
  int status = cu::kCaptureNone;
  cu::Result result =
      cu::api().capture_info(stream, &status, &place.capture, nullptr, nullptr, nullptr);
  if (result != cu::kSuccess) return result;
  place.capturing = status == cu::kCaptureActive;
  if (!place.capturing) place.capture = 0;
  // A stream that is capturing is not asked for its id: driver 580 answers with an error and ends the
  // capture. Its handle cannot be used again before the capture has ended.
  if (!place.capturing && cu::api().stream_id != nullptr) {
    return cu::api().stream_id(stream, &place.stream);
  }
  place.stream = reinterpret_cast<uintptr_t>(stream);
  return cu::kSuccess;
}

// Nobody tells that a capture has ended. But a stream is part of one capture at a time, until its end: where the
// stream of a capture's last operation is met in another one, that capture is over.
void StreamOrder::forget_ended(const Place& place) {
  for (Last& last : captured_) {
    if (last.place.stream == place.stream && last.place.capture != place.capture) last.valid = false;
  }
}

StreamOrder::Last* StreamOrder::find_captured(const Place& place) {
  for (Last& last : captured_) {
    if (last.valid && last.place.capture == place.capture) return &last;
  }
  return nullptr;
}

// A spare one, or one more: as many as may be under way at once. An event may be made in any capture.
cu::Result StreamOrder::make_captured(Last*& last) {
  for (Last& one : captured_) {
    if (!one.valid) last = &one;
  }
  if (last != nullptr) return cu::kSuccess;
  if (captured_.size() < kMost) {
    cu::RelaxedCaptureScope relaxed;
    Last fresh;
    const cu::Result result = cu::api().event_create(&fresh.event, cu::kEventDisableTiming);
    if (result == cu::kSuccess) last = &captured_.emplace_back(fresh);
    return result;
  }
  last = &*std::min_element(captured_.begin(), captured_.end(),
                            [](const Last& a, const Last& b) { return a.used < b.used; });
  given_up_.insert(last->place.capture);
  return cu::kSuccess;
}

cu::Result StreamOrder::wait_for_captured(cu::Stream stream, const Place& place) {
  forget_ended(place);
  const Last* const last = find_captured(place);
  // Rather no graph than one in which two operations of a communicator may run at once.
  if (last == nullptr) return given_up_.contains(place.capture) ? cu::kIllegalState : cu::kSuccess;
  return last->place.stream == place.stream ? cu::kSuccess : cu::api().stream_wait_event(stream, last->event, 0);
}

cu::Result StreamOrder::before(cu::Stream stream, Place& place) {
  const cu::Result result = locate(stream, place);
  if (result != cu::kSuccess) return result;
  if (place.capturing) return wait_for_captured(stream, place);
  if (!eager_.valid || eager_.place.stream == place.stream) return cu::kSuccess;
  return cu::api().stream_wait_event(stream, eager_.event, 0);
}

void StreamOrder::open() {
  SHUNT_CU(event_create, &by_shunt_, cu::kEventDisableTiming);
  SHUNT_CU(event_create, &by_nccl_, cu::kEventDisableTiming);
  captured_.resize(kSpare);
  for (Last& last : captured_) SHUNT_CU(event_create, &last.event, cu::kEventDisableTiming);
}

cu::Result StreamOrder::after(cu::Stream stream, const Place& place, By by) {
  Last* last = &eager_;
  if (!place.capturing) {
    eager_.event = by == By::kShunt ? by_shunt_ : by_nccl_;
    if (by != By::kShunt) by_all_ = by == By::kNcclAll;
  } else if ((last = find_captured(place)) == nullptr) {
    const cu::Result result = make_captured(last);
    if (result != cu::kSuccess) return result;
  }
  if (place.capturing) last->used = ++uses_;
  last->place = place;
  last->valid = true;
  return cu::api().event_record(last->event, stream);
}

cu::Result StreamOrder::poll() const {
  return eager_.valid ? cu::api().event_query(eager_.event) : cu::kSuccess;
}

bool StreamOrder::waits_for_all() const {
  return by_all_ && cu::api().event_query(by_nccl_) == cu::kNotReady;
}

}  // namespace shunt
