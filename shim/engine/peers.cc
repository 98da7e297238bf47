#include "shim/engine/peers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "shim/engine/log.h"

namespace shunt {
namespace {

// What /proc says about a process that exists.
struct ProcStat {
  enum { kRuns, kEnded, kUnknown } state = kUnknown;
  uint64_t start = 0;  // clock ticks since boot; 0: unknown
};

ProcStat proc_stat(int64_t pid) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%lld/stat", static_cast<long long>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno != EMFILE && errno != ENFILE) return {};
    // What can be told without a descriptor: a process that nobody has reaped has no folder any more.
    // (access: where /proc hides other users' processes this is not to be mistaken for it.)
    if (access(path, F_OK) != 0) return {};
    std::snprintf(path, sizeof(path), "/proc/%lld/cwd", static_cast<long long>(pid));
    char folder[8];
    const bool none = readlink(path, folder, sizeof(folder)) < 0 && errno == ENOENT;
    return {none ? ProcStat::kEnded : ProcStat::kRuns, 0};
  }
  char text[1024];
  const ssize_t bytes = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (bytes <= 0) return {};
  text[bytes] = '\0';
  // proc_pid_stat(5): "pid (name) state ...", the start time is field 22; the name may hold anything.
  const char* const name_end = std::strrchr(text, ')');
  char state = 0;
  unsigned long long start = 0;
  if (name_end == nullptr ||
      std::sscanf(name_end + 1,
                  " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                  &state, &start) != 2) {
    return {};
  }
  return {state == 'Z' || state == 'X' ? ProcStat::kEnded : ProcStat::kRuns, start};
}

void say_once(int error) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  // Old kernels and sandboxes lack pidfds, which is no news to anyone.
  const bool usual = error == ENOSYS || error == EPERM;
  (usual ? log_debug : log_warning)(
      "no descriptors for the processes of other ranks (pidfd_open: errno %d): looking them up by number",
      error);
}

}  // namespace

PeerProcesses::PeerProcesses(std::span<const Facts> facts, uint32_t own_rank) : peers_(facts.size()) {
  for (uint32_t r = 0; r < facts.size(); ++r) {
    if (facts[r].process_nonce == facts[own_rank].process_nonce || facts[r].pid_namespace == 0 ||
        facts[r].pid_namespace != facts[own_rank].pid_namespace || facts[r].pid <= 0) {
      continue;
    }
    peers_[r].pid = facts[r].pid;
    peers_[r].fd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(facts[r].pid), 0));
    if (peers_[r].fd >= 0) continue;
    const int error = errno;
    peers_[r].gone = error == ESRCH || ended(peers_[r]);
    if (error != ESRCH) say_once(error);
  }
}

PeerProcesses::~PeerProcesses() {
  for (const Peer& peer : peers_) {
    if (peer.fd >= 0) close(peer.fd);
  }
}

bool PeerProcesses::ended(const Peer& peer) {
  if (kill(static_cast<pid_t>(peer.pid), 0) != 0 && errno == ESRCH) return true;
  const ProcStat now = proc_stat(peer.pid);
  uint64_t known = 0;
  if (now.start != 0 && !peer.start.compare_exchange_strong(known, now.start) && known != now.start) {
    return true;
  }
  return now.state == ProcStat::kEnded;
}

bool PeerProcesses::dead(uint32_t rank) const {
  if (rank >= peers_.size()) return false;
  const Peer& peer = peers_[rank];
  if (peer.fd < 0) return peer.gone || (peer.pid > 0 && ended(peer));
  pollfd ready{peer.fd, POLLIN, 0};
  return poll(&ready, 1, 0) > 0;
}

std::string PeerProcesses::text(uint32_t ranks) const {
  std::string text;
  for (uint32_t r = 0; r < kMaxRanks; ++r) {
    if ((ranks >> r & 1) == 0) continue;
    text += format("%srank %u (process %lld)", text.empty() ? "" : ", ", r, static_cast<long long>(pid(r)));
  }
  return text;
}

uint32_t PeerProcesses::dead_ranks() const {
  uint32_t ranks = 0;
  for (uint32_t r = 0; r < peers_.size(); ++r) {
    if (dead(r)) ranks |= 1u << r;
  }
  return ranks;
}

}  // namespace shunt
