// The ranks that one thread drives: one, or all of them with grouped calls. Everything that the
// benchmark does to GPUs goes through here, so that it reads the same either way.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "tools/bench/board.h"
#include "tools/bench/channel.h"
#include "tools/bench/options.h"
#include "tools/worker/driver.h"
#include "tools/worker/nccl_paths.h"

namespace shunt::bench {

class Communicator {
 public:
  Communicator() = default;
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&&) = delete;
  ~Communicator() {
    if (comm_ != nullptr) ncclCommDestroy(comm_);
  }
  void init(uint32_t ranks, const ncclUniqueId& id, uint32_t rank);
  void destroy();
  ncclComm_t get() const { return comm_; }

 private:
  ncclComm_t comm_ = nullptr;
};

struct Member {
  uint32_t rank;
  PrimaryContext context;
  Stream stream;
  Communicator comm;
  DeviceMemory meeting;  // one float, for meet()
};

// One all-reduce of every member: buffers by index of the member.
struct Call {
  std::vector<const void*> send;
  std::vector<void*> receive;
  uint64_t count;
  DataType type;
  ReduceOp op;
};

class Team {
 public:
  Team(const Options& options, Board& board, Channel& channel, const std::vector<uint32_t>& ranks);
  ~Team();

  // Makes the communicators, through the hooked functions.
  void connect(const ncclUniqueId& id);
  // Says how many calls were made, and destroys the communicators.
  void finish();

  size_t size() const { return members_.size(); }
  Member& member(size_t i) { return members_[i]; }
  // Calls `action` for each member with its GPU current.
  void each(const std::function<void(size_t, Member&)>& action);

  // Enqueues one all-reduce for all members. Anything but ncclInvalidArgument and success throws.
  ncclResult_t all_reduce(Path path, const Call& call);

  // One graph a member, with all that `enqueue` enqueues; empty if it was refused (`code` says so).
  std::vector<GraphExec> capture(const std::function<ncclResult_t()>& enqueue, ncclResult_t& code);
  void launch(const std::vector<GraphExec>& graphs);

  // Makes the streams of all ranks go on from here at the same moment, by a small all-reduce of NCCL's
  // own: what is timed next must not hold the delay of a rank that was launched late.
  void meet();
  void synchronize();
  // Waits for all teams of the job.
  void barrier();
  // Throws unless all teams' calls returned the same: a rank that is refused alone leaves the
  // others waiting for it on their GPUs.
  void agree(ncclResult_t code);
  void phase(std::string_view text);

  Channel& channel() { return channel_; }
  const Options& options() const { return options_; }

 private:
  ncclResult_t enqueue_all(Path path, const Call& call);

  const Options& options_;
  Board& board_;
  Channel& channel_;
  std::vector<Member> members_;
  // Of both paths, so that counting costs the timed calls of both the same; only the shunt's are
  // reported.
  struct Count {
    std::map<uint64_t, uint64_t> accepted;  // bytes -> calls
    uint64_t refused = 0;                   // calls that returned an error
  };
  std::array<Count, kPaths> counts_;
};

}  // namespace shunt::bench
