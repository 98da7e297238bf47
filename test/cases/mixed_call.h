// One all-reduce of the mixed program, as one rank makes it.
#pragma once

#include <memory>
#include <vector>

#include "test/cases/exchange.h"
#include "test/cases/shapes_data.h"

namespace cases::mixed {

// A communicator, as one rank has it.
struct Link {
  ncclComm_t comm = nullptr;
  int rank = -1;  // -1: no part of it
  int ranks = 0;
};

// One all-reduce, drawn alike by all ranks.
struct Draw {
  uint64_t serial = 0;
  size_t link = 0;
  DataType type{};
  ReduceOp op{};
  size_t count = 0;
  bool forwarded = false;  // by its size, or by what its communicator's calls of the group come to

  size_t bytes() const { return count * size_of(type); }
};

// Sizes on both sides of `cap` (bytes). `like`: small, of the same type and operation; or null.
Draw draw_call(Random& all, uint64_t serial, size_t cap, const Draw* like = nullptr);
// Decides for calls of one group, or for one, by their sum.
void decide(std::vector<Draw>& draws, size_t cap);

// One rank's part of it, with buffers and a stream of its own choice. Nothing here waits.
class Call {
 public:
  Call(const Draw& draw, const Link& link, CUstream stream, Random& own);

  bool shunted() const { return shunted_; }
  void fill(uint64_t round);  // not before the last round was checked
  void enqueue() const;
  void fetch() const;
  void check() const;  // after the stream has ended

 private:
  size_t bytes() const { return draw_.bytes(); }
  size_t arena_bytes() const;
  const Memory& sent() const { return in_place_ ? recv_ : send_; }
  size_t from() const { return in_place_ ? recv_at_ : send_at_; }

  const Draw draw_;
  const Link link_;
  const bool shunted_;
  const CUstream stream_;
  const bool in_place_;
  const size_t send_at_, recv_at_;
  const Memory send_, recv_;
  const Pinned input_, output_;
  std::vector<Bytes> inputs_;
};

using Calls = std::vector<std::unique_ptr<Call>>;

}  // namespace cases::mixed
