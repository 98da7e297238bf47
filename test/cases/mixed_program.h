// Everything together, as a seed draws it: types, operations, sizes on both sides of the cap, eager
// calls on two streams, groups, graphs, and a second communicator that is split anew now and then, of
// all ranks or fewer. Each result is compared bit by bit. What all ranks must do alike comes from one
// generator, what may differ between them from another.
#pragma once

#include "test/cases/mixed_call.h"

namespace cases::mixed {

inline constexpr size_t kGraphs = 2;

class Program {
 public:
  // `slot`: of its communicator (Rank::connect). `slowness`: of this process's clock.
  Program(const Rank& rank, uint64_t seed, size_t cap, int slot, int slowness);
  void run(int steps);

  uint32_t shunted() const { return shunted_; }
  uint32_t forwarded() const { return forwarded_; }

 private:
  struct Captured {
    Calls calls;
    std::unique_ptr<Graph> graph;
  };

  void step();
  void eager();
  void group();
  void capture(size_t which);
  void replay(size_t which);
  void split();
  void renew_split();
  void end();

  Calls draw_calls(size_t most, bool any_stream, bool grouped, bool* one_each = nullptr);
  void fill(const Calls& calls);
  void enqueue(const Calls& calls);
  void finish(const Calls& calls);
  void wait() const;

  const Rank& rank_;
  const uint64_t seed_;
  const size_t cap_;
  const int slowness_;
  Random all_, own_;
  const Stream streams_[2];
  Link links_[2];
  Captured captured_[kGraphs];
  bool forked_ = false;
  int step_ = -1;
  uint64_t draws_ = 0, rounds_ = 0;
  uint32_t shunted_ = 0, forwarded_ = 0;
};

}  // namespace cases::mixed
