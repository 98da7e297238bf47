#include "shim/engine/peers.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace shunt {

PeerProcesses::PeerProcesses(std::span<const Facts> facts, uint32_t own_rank) : peers_(facts.size()) {
  for (uint32_t r = 0; r < facts.size(); ++r) {
    if (facts[r].process_nonce == facts[own_rank].process_nonce ||
        facts[r].pid_namespace != facts[own_rank].pid_namespace || facts[r].pid <= 0) {
      continue;
    }
    peers_[r].pid = facts[r].pid;
    peers_[r].fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(facts[r].pid), 0));
    peers_[r].gone = peers_[r].fd < 0 && errno == ESRCH;
  }
}

PeerProcesses::~PeerProcesses() {
  for (const Peer& peer : peers_) {
    if (peer.fd >= 0) close(peer.fd);
  }
}

bool PeerProcesses::dead(uint32_t rank) const {
  if (rank >= peers_.size()) return false;
  const Peer& peer = peers_[rank];
  if (peer.fd < 0) return peer.gone;
  pollfd ready{peer.fd, POLLIN, 0};
  return poll(&ready, 1, 0) > 0;
}

uint32_t PeerProcesses::dead_ranks() const {
  uint32_t ranks = 0;
  for (uint32_t r = 0; r < peers_.size(); ++r) {
    if (dead(r)) ranks |= 1u << r;
  }
  return ranks;
}

}  // namespace shunt
