// A communicator's operations run in the order of the calls, whatever their streams: every
// operation waits for an event that the one before it recorded. Inside a capture the event is the
// capture's own; between graphs and eager calls the order is kept by external event nodes, as NCCL
// does.
#pragma once

#include <cuda.h>
#include <nccl.h>

#include <map>
#include <vector>

namespace emu_nccl {

struct CaptureState {
  bool active = false;
  cuuint64_t id = 0;
  bool operator==(const CaptureState&) const = default;
};
ncclResult_t capture_state(CUstream stream, CaptureState* state);

class StreamOrder {
 public:
  StreamOrder() = default;
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // All with the communicator's context current. create: once. destroy: before the context goes.
  ncclResult_t create();
  void destroy();

  // Before and after the operations of one batch, which run on the first of `streams`; the others
  // wait for them and are waited for.
  ncclResult_t enter(const std::vector<CUstream>& streams, const CaptureState& capture);
  ncclResult_t leave(const std::vector<CUstream>& streams, const CaptureState& capture);

  // Until everything that was enqueued has run, or the context has failed.
  ncclResult_t drain();

 private:
  struct Captured {
    CUevent event;
    unsigned long age;
  };
  ncclResult_t captured_event(cuuint64_t id, CUevent* event, bool* fresh);

  CUevent newest_ = nullptr;  // recorded after every batch, by replays too
  CUevent join_ = nullptr;    // scratch: joins the streams of a group
  std::map<cuuint64_t, Captured> captures_;
  unsigned long ages_ = 0;
};

}  // namespace emu_nccl
