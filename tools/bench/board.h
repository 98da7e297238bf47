// Memory that the launcher and all workers share: a barrier, and what each rank is doing (for the
// report of a hang, so it must be readable when the worker is stuck or gone). It is a memfd: no
// name, nothing stays behind whatever is killed when.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/bench/file_descriptor.h"
#include "tools/bench/options.h"

namespace shunt::bench {

class Board {
 public:
  // `parties`: how many threads meet at the barrier.
  static Board create(uint32_t parties);
  static Board open(int fd);  // in a worker; takes the descriptor over

  Board(Board&& other) noexcept;
  Board& operator=(Board&&) = delete;
  ~Board();

  int fd() const { return fd_.get(); }

  void set_phase(uint32_t rank, std::string_view phase);
  // "graph 4K bfloat16 sum in: check NCCL", with " (waiting for other ranks)" while in the barrier.
  std::string phase_of(uint32_t rank) const;
  bool is_waiting(uint32_t rank) const;

  // Returns when all parties have called it. Not bounded by itself: the launcher ends a worker
  // whose peers never arrive. `rank` is shown as waiting meanwhile.
  void barrier(uint32_t rank);

  // A barrier that also tells the largest `value` that any party brought.
  uint32_t largest(uint32_t rank, uint32_t value);

 private:
  struct Memory;
  explicit Board(FileDescriptor fd);

  FileDescriptor fd_;
  Memory* memory_ = nullptr;
};

}  // namespace shunt::bench
