#include "shim/engine/stream_order.h"

namespace shunt {

void StreamOrder::close() noexcept {
  const auto destroy = [](Last& last) {
    if (last.event != nullptr) cu::api().event_destroy(last.event);
    last = {};
  };
  destroy(eager_);
  for (Last& last : captured_) destroy(last);
}

void StreamOrder::forget() noexcept {
  eager_ = {};
  for (Last& last : captured_) last = {};
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

StreamOrder::Last& StreamOrder::last_for(const Place& place) {
  if (!place.capturing) return eager_;
  for (Last& last : captured_) {
    if (last.place.capturing && last.place.capture == place.capture) return last;
  }
  Last& oldest = captured_[next_capture_++ % kCaptures];
  oldest.valid = false;
  oldest.place = place;
  return oldest;
}

cu::Result StreamOrder::before(cu::Stream stream, Place& place) {
  const cu::Result result = locate(stream, place);
  if (result != cu::kSuccess) return result;
  const Last& last = last_for(place);
  if (!last.valid || last.place.capture != place.capture || last.place.stream == place.stream) {
    return cu::kSuccess;
  }
  return cu::api().stream_wait_event(stream, last.event, 0);
}

void StreamOrder::open() {
  SHUNT_CU(event_create, &eager_.event, cu::kEventDisableTiming);
  for (Last& last : captured_) SHUNT_CU(event_create, &last.event, cu::kEventDisableTiming);
}

cu::Result StreamOrder::after(cu::Stream stream, const Place& place) {
  Last& last = last_for(place);
  last.place = place;
  last.valid = true;
  return cu::api().event_record(last.event, stream);
}

cu::Result StreamOrder::poll() const {
  return eager_.valid ? cu::api().event_query(eager_.event) : cu::kSuccess;
}

}  // namespace shunt
