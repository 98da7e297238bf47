// One rank's share in the mailboxes of a communicator: its own slab or outbox in host memory, those of its
// peers, mapped, and its pinned page. A set outlives its communicator: nobody frees what a peer still maps, so a set whose
// calls all ended by data is kept for the next communicator of the same ranks, any other is leaked.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/protocol.h"
#include "shim/engine/device.h"
#include "shim/engine/shared_memory.h"
#include "shim/engine/verdict.h"

namespace shunt {

// Owns a private non-blocking stream, with pinned staging memory; for preparing only.
class PrivateStream {
 public:
  explicit PrivateStream(const GpuDevice& device);
  ~PrivateStream();
  PrivateStream(const PrivateStream&) = delete;
  PrivateStream& operator=(const PrivateStream&) = delete;
  cu::Stream get() const { return stream_; }
  // Whether all work has ended; throws cu::Error if some of it failed.
  bool idle() const;

 private:
  const GpuDevice& device_;
  cu::Stream stream_ = nullptr;
};

class SlabSet {
 public:
  // Allocates the slab (whole allocation granules, so that an exported handle shows nothing else) and the
  // outbox in host memory, and fills them: counters kFirstCounter, flagged regions zero, sentinel regions all
  // ones. Waits until that is done. Throws cu::Error.
  SlabSet(const GpuDevice& device, const Geometry& geometry, uint32_t rank, cu::Stream stream);
  SlabSet(const SlabSet&) = delete;
  SlabSet& operator=(const SlabSet&) = delete;

  void offer(SlabOffer& offer) const;  // throws cu::Error where IPC is refused
  void free_unmapped() noexcept;       // only while no peer can have mapped it
  // Maps the peers' memory: peer access within a process (nonces equal), CUDA IPC across; host memory is
  // opened. On failure throws cu::Error; `failed_peer` then names the peer.
  void map_peers(std::span<const Facts> facts, std::span<const SlabOffer> offers, int& failed_peer);
  // Once every peer has mapped it: from now on no process can.
  void seal() noexcept { outbox_.close(); }

  // A digest of lane states and stop word, or 0 if the set is not clean. Enqueues on `stream` and waits.
  uint64_t clean_state(cu::Stream stream) const;

  // Every kernel that starts from now on ends before its first store. Once the host's order is an abort, so
  // that nothing waits in front of it; gives up after a while.
  void stop() const noexcept;

  const GpuDevice& device() const { return device_; }
  const Geometry& geometry() const { return geometry_; }
  uint32_t rank() const { return rank_; }
  HostBoard* board() const { return board_; }
  // What all calls on this set have in common; the caller fills in the call.
  const AllReduceParams& params(Protocol protocol) const {
    return params_[static_cast<size_t>(protocol)];
  }
  uint64_t id() const { return id_; }
  void set_id(uint64_t id) { id_ = id; }

 private:
  void fill(cu::Stream stream);
  cu::Ptr map_slab(const Facts& mine, const Facts& theirs, const SlabOffer& offer) const;
  unsigned char* map_outbox(const Facts& mine, const Facts& theirs, uint32_t peer, const SlabOffer& offer);

  const GpuDevice& device_;
  Geometry geometry_;
  uint32_t rank_;
  SharedMemory outbox_;                         // host
  std::array<SharedMemory, kMaxRanks> mapped_;  // the peers', by rank; host
  cu::Ptr slab_ = 0;
  size_t bytes_ = 0;
  HostBoard* board_ = nullptr;
  cu::Ptr board_on_device_ = 0;
  uint64_t id_ = 0;
  std::array<AllReduceParams, kProtocols> params_{};
};

// Sets that no communicator uses.
class SlabPool {
 public:
  static SlabPool& get();
  void give(std::unique_ptr<SlabSet> set);
  // Takes out the clean free sets of `rank` of `ranks` on `device`, at most kPoolOffers: two
  // communicators that are prepared at once must not offer the same set.
  std::vector<std::unique_ptr<SlabSet>> reserve(const GpuDevice& device, uint32_t rank,
                                                uint32_t ranks);

 private:
  struct State;
  SlabPool();
  State& state_;
};

}  // namespace shunt
