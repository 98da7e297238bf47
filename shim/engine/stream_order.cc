#include "shim/engine/stream_order.h"

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
  for (Last& last : captured_) last = {};
}

cu::Result StreamOrder::locate(cu::Stream stream, Place& place) const {
  int status = cu::kCaptureNone;
  cu::Result result =
      cu::api().capture_info(stream, &status, &place.capture, nullptr, nullptr, nullptr);
  if (result != cu::kSuccess) return result;
  place.capturing = status == cu::kCaptureActive;
  // A stream that is capturing is not asked for its id: driver 580 answers with an error and ends the
  // capture. Its handle cannot be used again before the capture has ended.
  if (!place.capturing && cu::api().stream_id != nullptr) {
    place.capture = 0;
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
  SHUNT_CU(event_create, &by_shunt_, cu::kEventDisableTiming);
  SHUNT_CU(event_create, &by_nccl_, cu::kEventDisableTiming);
  for (Last& last : captured_) SHUNT_CU(event_create, &last.event, cu::kEventDisableTiming);
}

cu::Result StreamOrder::after(cu::Stream stream, const Place& place, By by) {
  Last& last = last_for(place);
  if (!place.capturing) {
    last.event = by == By::kShunt ? by_shunt_ : by_nccl_;
    if (by != By::kShunt) by_all_ = by == By::kNcclAll;
  }
  last.place = place;
  last.valid = true;
  return cu::api().event_record(last.event, stream);
}

cu::Result StreamOrder::poll() const {
  return eager_.valid ? cu::api().event_query(eager_.event) : cu::kSuccess;
}

bool StreamOrder::waits_for_all() const {
  return by_all_ && cu::api().event_query(by_nccl_) == cu::kNotReady;
}

}  // namespace shunt
