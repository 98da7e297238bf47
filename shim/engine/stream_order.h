// NCCL runs the operations of one communicator in the order of the calls, whatever their streams; so do
// we, among shunted calls and between shunted and forwarded ones. Two kernels of one communicator at once
// would use the same call counters.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "shim/engine/driver_api.h"

namespace shunt {

class StreamOrder {
 public:
  StreamOrder() = default;
  ~StreamOrder() { close(); }
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // Makes the events, with the communicator's context current; throws cu::Error. Not at the first call,
  // which may be captured.
  void open();
  void close() noexcept;  // the context of the communicator must be current; again: no effect
  void forget() noexcept;  // its context has gone, and the events with it

  // Eager calls and each capture have their own order: an event of one may not be waited for in another.
  struct Place {
    bool capturing = false;
    unsigned long long capture = 0;  // id of the capture
    unsigned long long stream = 0;   // id of the stream, not its handle: handles are reused
  };

  // Who runs an operation. kNcclAll: NCCL, and no rank can come to its end before all have begun it.
  enum class By { kShunt, kNccl, kNcclAll };

  static cu::Result locate(cu::Stream stream, Place& place);

  // Call around each operation, with the communicator's context current. `before` makes the stream wait
  // for the last operation if that was on another stream, `after` records one event.
  cu::Result before(cu::Stream stream, Place& place);
  cu::Result after(cu::Stream stream, const Place& place, By by);
  // kSuccess: the last eager operation has ended; kNotReady; or an error.
  cu::Result poll() const;
  // Whether the last eager operation of NCCL is such a one (kNcclAll) and has not ended.
  bool waits_for_all() const;

 private:
  struct Last {
    cu::Event event = nullptr;
    Place place{};
    bool valid = false;
    uint64_t used = 0;  // when, of captured operations
  };
  void forget_ended(const Place& place);
  Last* find_captured(const Place& place);
  cu::Result make_captured(Last*& last);
  cu::Result wait_for_captured(cu::Stream stream, const Place& place);

  Last eager_;  // its event is one of these two
  cu::Event by_shunt_ = nullptr, by_nccl_ = nullptr;
  bool by_all_ = false;
  // One for each capture that may be under way, and spare ones. A program that captures each graph on streams of
  // their own never lets us know that a capture is over: then the one that was used longest ago is given up.
  static constexpr size_t kSpare = 2, kMost = 256;
  std::vector<Last> captured_;
  std::set<unsigned long long> given_up_;
  uint64_t uses_ = 0;
};

}  // namespace shunt
