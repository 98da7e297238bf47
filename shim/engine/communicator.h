// One communicator of the real NCCL, as this library knows it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "shim/engine/call_ring.h"
#include "shim/engine/launch.h"
#include "shim/engine/nccl_library.h"
#include "shim/engine/stream_order.h"
#include "shim/engine/verdict.h"
#include "shim/engine/verify.h"
#include "shim/engine/watch.h"

namespace shunt {

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  // `key`: equal for all local ranks of one communicator and for no other. `blocking`: false where
  // the communicator was configured so, or does not tell its rank; it is then forwarded for ever.
  Communicator(NcclLibrary& library, ncclComm_t handle, std::string key, bool blocking);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  NcclLibrary& library() const { return library_; }
  ncclComm_t handle() const { return handle_; }
  const std::string& key() const { return key_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  cu::Device device() const { return device_; }
  bool blocking() const { return blocking_; }
  int next_split() { return splits_++; }

  static unsigned long long
  ever_shunting();  // how many communicators of this process came to shunt

  // What later calls need and may fail: before the rounds, so that a rank that cannot have it can
  // say so.
  void open();
  // The end of preparing: from here on calls may be shunted.
  void adopt(const Verdict& verdict, std::unique_ptr<SlabSet> set, std::shared_ptr<Watch> watch);
  bool shunting() const { return shunting_.load(std::memory_order_acquire); }
  const Verdict& verdict() const { return verdict_; }
  // Law 1, and what the ranks have agreed on since.
  bool accepts(size_t count, int type, int op) const {
    return shunting() && !forwards_.load(std::memory_order_relaxed) &&
           shunts(verdict_, count, type, op);
  }
  // Each all-reduce, in the order of the calls.
  void note_all_reduce(uint64_t bytes, int type, int op, bool shunted) noexcept {
    ring_->add(bytes, type, op, shunted);
  }
  // Once all ranks know that a verified call was wrong. Replays go on; the order of operations is
  // still kept. False if it was so already.
  bool forward_from_now_on() { return !forwards_.exchange(true, std::memory_order_relaxed); }
  // ncclRemoteError once an operation ended otherwise than by data, or never will, else
  // ncclSuccess.
  ncclResult_t failure() const;
  // The same, and looks whether NCCL's kernels wait for a rank that has died.
  ncclResult_t look_for_failure() noexcept;
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }

  // Enqueues calls that were accepted as one kernel (launch_all_reduce), where they are several on
  // several streams after extend() of each. What is to be verified comes into `due`, for verify()
  // once no group is open.
  ncclResult_t all_reduce(std::span<const AllReduceCall> calls, Verifications& due) noexcept;
  // Stream order around an operation that NCCL enqueues; no effect unless the communicator shunts.
  ncclResult_t before_forwarded(cu::Stream stream, StreamOrder::Place& place) noexcept;
  ncclResult_t after_forwarded(cu::Stream stream, const StreamOrder::Place& place,
                               StreamOrder::By by) noexcept;
  // Makes `stream` wait for the last operation.
  ncclResult_t join(cu::Stream stream) noexcept;
  // Moves the order's end to `stream`, so that the next operation follows what is on it.
  ncclResult_t extend(cu::Stream stream, StreamOrder::By by) noexcept;

  // Whether both streams are captured by one graph, or neither is.
  bool same_capture(cu::Stream a, cu::Stream b) noexcept;

  // Ends every wait of this communicator's kernels; they end unfinished, and so does every later
  // one.
  void abort() noexcept;
  // Waits until the last eager shunted or forwarded operation has ended, was aborted or has failed.
  void drain() noexcept;
  // After destroy: the slab set goes back to the pool if it may be used again.
  void retire() noexcept;

 private:
  // Destroyed or aborted, while this call was on its way (mutex_ is held).
  bool retired() const { return set_ == nullptr || aborted(); }
  // Its context was reset, with all that this communicator has there (mutex_ is held). Said once.
  bool lost() noexcept;
  // What the caller gets; logs an error. `what`: was being done.
  ncclResult_t to_nccl(cu::Result result, const char* what) const noexcept;

  NcclLibrary& library_;
  const ncclComm_t handle_;
  const std::string key_;
  bool blocking_;
  int rank_ = 0;
  int ranks_ = 1;
  cu::Device device_ = 0;
  int splits_ = 0;

  std::mutex mutex_;  // never held while waiting for a peer
  std::atomic<bool> shunting_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> forwards_{false};
  Verdict verdict_;
  std::unique_ptr<SlabSet> set_;
  std::shared_ptr<Watch> watch_;
  const std::shared_ptr<CallRing> ring_ = std::make_shared<CallRing>();
  StreamOrder order_;
  const GpuDevice* opened_on_ = nullptr;
  bool lost_ = false;
  std::optional<Clock::time_point> stuck_since_;  // NCCL's last operation, with a dead peer
  uint32_t calls_ = 0;                            // recorded so far
  uint32_t eager_ = 0;  // not captured ones; counted only where some are verified
};

}  // namespace shunt
