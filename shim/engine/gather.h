// One round of preparing: every rank's record reaches every rank, by a real NCCL all-reduce (max over
// bytes, each rank filling its own part): no socket, file or name, and it waits for nothing but the peers.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "shim/engine/communicator.h"
#include "shim/engine/peers.h"
#include "shim/engine/scratch.h"

namespace shunt {

// One rank of the communicator that this process holds, while it is prepared.
struct LocalRank {
  Communicator* communicator = nullptr;
  const GpuDevice* device = nullptr;
  std::unique_ptr<PrivateStream> stream;
  std::unique_ptr<SlabSet> set;
  std::vector<std::unique_ptr<SlabSet>> reserved;  // free sets of earlier communicators
  std::unique_ptr<Scratch> scratch;                // kMaxRecord bytes a rank

  uint32_t rank() const { return static_cast<uint32_t>(communicator->rank()); }
};

// Ends preparing: nothing more can be said to the peers.
struct GatherFailed {
  ncclResult_t result;
  std::string reason;
};

class Gatherer {
 public:
  static constexpr size_t kMaxRecord = 1024;

  explicit Gatherer(std::span<LocalRank> locals) : locals_(locals) {}
  // From now on, a peer whose process ends while it is waited for ends preparing.
  void watch_peers(std::unique_ptr<PeerProcesses> peers) { peers_ = std::move(peers); }
  std::unique_ptr<PeerProcesses> take_peers() { return std::move(peers_); }

  // mine[i]: the record of locals[i]. Returns all ranks' records in rank order. Throws GatherFailed.
  template <typename T>
  std::vector<T> gather(std::span<const T> mine, const char* round) {
    static_assert(sizeof(T) <= kMaxRecord && std::is_trivially_copyable_v<T>);
    const auto ranks = static_cast<size_t>(locals_[0].communicator->ranks());
    std::vector<T> table(ranks);
    exchange(reinterpret_cast<const unsigned char*>(mine.data()), sizeof(T),
             reinterpret_cast<unsigned char*>(table.data()), round);
    return table;
  }

  // Until the streams of all locals are idle. Ends otherwise by an abort or a dead peer only, and says after a
  // while that it lasts: throws GatherFailed, or cu::Error.
  void wait(const char* round);

 private:
  void exchange(const unsigned char* mine, size_t bytes, unsigned char* table, const char* round);
  void enqueue_all(size_t total);

  std::span<LocalRank> locals_;
  std::unique_ptr<PeerProcesses> peers_;
};

}  // namespace shunt
