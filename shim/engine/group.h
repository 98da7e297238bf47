// ncclGroupStart/End of one thread and one library. Calls that will be shunted wait here until the
// outermost End, as NCCL's own do; calls that are forwarded go into NCCL's group at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shim/engine/communicator.h"

namespace shunt {

// A communicator that a call is about to make. `out` is filled by NCCL, at the latest when the outermost
// group ends; null there: this rank is not part of it (a split with no colour).
struct Maker {
  ncclComm_t* out;
  std::string key;
  bool blocking;
};

class Group {
 public:
  // This thread's group of `library`.
  static Group& of(const NcclLibrary& library);

  bool open() const { return depth_ > 0; }
  ncclResult_t start(NcclLibrary& library);
  ncclResult_t end(NcclLibrary& library);
  // ncclGroupSimulateEnd: ends a level and runs nothing.
  template <typename F>
  ncclResult_t simulate_end(F&& real) {
    const ncclResult_t result = real();
    if (depth_ > 0 && --depth_ == 0) clear();
    return result;
  }

  void queue(Communicator& communicator, const AllReduceCall& call);
  // `communicator`: null if unknown.
  void note_forwarded(Communicator* communicator, cu::Stream stream, StreamOrder::By by, ncclResult_t result);
  void note_failure(ncclResult_t result) {
    if (failed_ == ncclSuccess) failed_ = result;
  }
  void queue_maker(Maker maker) { makers_.push_back(std::move(maker)); }

 private:
  struct Shunted {
    Communicator* communicator;
    AllReduceCall call;
    bool behind_own;     // a forwarded operation of its communicator, in this group
    bool behind_others;  // one that may wait for other ranks, on its device
    bool first = false;  // to run before NCCL's group
  };
  struct Use {
    Communicator* communicator;
    cu::Stream stream;
    StreamOrder::By by = StreamOrder::By::kNccl;
  };
  bool forwards(const Communicator& communicator) const;  // has it forwarded operations here?
  void place_shunted();
  ncclResult_t run_shunted(bool first, Verifications& due);
  ncclResult_t finish_forwarded();
  // For each stream of each communicator that has several in this group.
  template <typename F>
  ncclResult_t for_shared_streams(F&& action);
  void add_use(Communicator& communicator, cu::Stream stream);
  void clear();

  int depth_ = 0;
  ncclResult_t failed_ = ncclSuccess;  // the first error of a call in this group
  std::vector<cu::Device> forwarded_on_;  // devices with forwarded operations in this group
  std::vector<Shunted> shunted_;
  std::vector<Use> forwarded_;
  std::vector<Use> uses_;  // every (communicator, stream) once
  std::vector<Maker> makers_;
};

// Registers and prepares what `makers` made, communicator after communicator in an order that all ranks
// share. The result is what the maker's caller gets if NCCL itself succeeded.
ncclResult_t finish_makers(NcclLibrary& library, const std::vector<Maker>& makers);

}  // namespace shunt
