// ncclGroupStart/End of one thread and one library. Calls that will be shunted wait here until the
// outermost End, as NCCL's own do; those of one communicator then become one kernel for each type and operation.
// Calls that are forwarded go into NCCL's group at once.
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

  // While the group is open, of a communicator that shunts. What its all-reduces in this group have together is
  // shunted or forwarded, as one all-reduce of that size would be: NCCL fuses them too. All ranks decide alike, for
  // a communicator's calls must be grouped alike on all of its ranks: NCCL schedules a group's calls together (a
  // group against single calls is undefined: github.com/NVIDIA/nccl/issues/1279).
  ncclResult_t all_reduce(NcclLibrary& library, Communicator& communicator, const AllReduceCall& call);
  // Runs `real`, an operation of NCCL's, in the communicator's order (null: unknown); in a group or not.
  template <typename F>
  ncclResult_t forward(Communicator* communicator, cu::Stream stream, StreamOrder::By by, F&& real) {
    if (communicator == nullptr || !communicator->shunting()) {
      const ncclResult_t result = real();
      if (open()) note_forwarded(communicator, stream, by, result);
      return result;
    }
    StreamOrder::Place place;
    ncclResult_t result = communicator->before_forwarded(stream, place);
    if (result != ncclSuccess) {
      if (open()) note_failure(result);
      return result;
    }
    result = real();
    if (open()) {
      note_forwarded(communicator, stream, by, result);
    } else if (result == ncclSuccess) {
      result = communicator->after_forwarded(stream, place, by);
    }
    return result;
  }
  void note_failure(ncclResult_t result) {
    if (failed_ == ncclSuccess) failed_ = result;
  }
  void queue_maker(Maker maker) { makers_.push_back(std::move(maker)); }

 private:
  // What a communicator's all-reduces come to in this group.
  struct Sum {
    Communicator* communicator;
    uint64_t bytes;
    bool forwards;  // more than the cap
  };
  struct Queued {
    Communicator* communicator;
    AllReduceCall call;
    bool behind_own;     // a forwarded operation of its communicator, in this group
    bool behind_others;  // one that may wait for other ranks, on its device
    size_t kernel;       // number of the one that runs it
  };
  // Calls that run as one: the first one's place is theirs.
  struct Kernel {
    const Queued* first_call;
    uint32_t packets;
    size_t count;
    size_t begin;        // in calls_
    bool first = false;  // to run before NCCL's group
  };
  struct Use {
    Communicator* communicator;
    cu::Stream stream;
    StreamOrder::By by = StreamOrder::By::kNccl;
  };
  bool forwards(const Communicator& communicator) const;  // has it forwarded operations here?
  Sum& sum_of(Communicator& communicator);
  ncclResult_t forward_all_reduce(NcclLibrary& library, Communicator& communicator, const AllReduceCall& call);
  ncclResult_t forward_queued(NcclLibrary& library, Communicator& communicator);
  void note_forwarded(Communicator* communicator, cu::Stream stream, StreamOrder::By by, ncclResult_t result);
  bool broken(const Communicator& communicator) const;
  // Keeps the first error; what else the group has for this communicator is left out, and nothing of the others'.
  void note(const Communicator& communicator, ncclResult_t result);
  void keep(Communicator& communicator);
  void before_ncclGroupEnd(Verifications& due);
  void after_ncclGroupEnd(Verifications& due);
  void verify_each(Verifications& due);
  void fuse();
  void place_kernels();
  void run_kernels(bool first, Verifications& due);
  void finish_forwarded();
  // For each stream of each communicator that has several in this group.
  template <typename F>
  void for_shared_streams(F&& action);
  ncclResult_t add_use(Communicator& communicator, cu::Stream stream);
  void clear();

  int depth_ = 0;
  ncclResult_t failed_ = ncclSuccess;  // the first error of a call in this group
  std::vector<cu::Device> forwarded_on_;  // devices with forwarded operations in this group
  ncclResult_t ours_ = ncclSuccess;  // the first error of what End does itself,
  std::vector<const Communicator*> broken_;  // and of which communicators
  std::vector<std::shared_ptr<Communicator>> kept_;  // another thread may abort and forget what is named here
  std::vector<Sum> sums_;
  std::vector<Queued> queued_;
  std::vector<Kernel> kernels_;
  std::vector<AllReduceCall> calls_;  // the queued ones, kernel by kernel
  std::vector<Use> forwarded_;
  std::vector<Use> uses_;  // every (communicator, stream) once
  std::vector<Maker> makers_;
};

// Registers and prepares what `makers` made, communicator after communicator in an order that all ranks
// share. The result is what the maker's caller gets if NCCL itself succeeded.
ncclResult_t finish_makers(NcclLibrary& library, const std::vector<Maker>& makers);

}  // namespace shunt
