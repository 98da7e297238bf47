// The processes of a communicator's other ranks, to notice that one has died. Host only: no CUDA call.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shim/engine/verdict.h"

namespace shunt {

class PeerProcesses {
 public:
  PeerProcesses() = default;
  // Ranks of this process, of other pid namespaces (where a pid means another process) and of unknown ones
  // (no /proc) are left out.
  PeerProcesses(std::span<const Facts> facts, uint32_t own_rank);
  ~PeerProcesses();
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  bool dead(uint32_t rank) const;
  // Bit r: the process of rank r has ended.
  uint32_t dead_ranks() const;
  // "rank 1 (process 4711), rank 2 (process 4712)"; bit r of `ranks`: rank r.
  std::string text(uint32_t ranks) const;
  int64_t pid(uint32_t rank) const { return rank < peers_.size() ? peers_[rank].pid : 0; }

 private:
  struct Peer {
    int64_t pid = 0;
    int fd = -1;        // pidfd: stays bound to this process when its pid is used again
    bool gone = false;  // had already ended when we asked
    // Where there is no pidfd: in the place of it, tells this process from a later one with its pid. 0: not
    // known (yet).
    mutable std::atomic<uint64_t> start = 0;
  };
  static bool ended(const Peer& peer);  // without a pidfd
  std::vector<Peer> peers_;
};

}  // namespace shunt
