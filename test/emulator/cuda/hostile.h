// Hostile delivery (EMU_HOSTILE): a store is cut at its grain into words that wait in the writer's
// launch and arrive in any order, some much later; only words of one block to one address keep
// their order. What is legal on a GPU and hardly ever happens there, happens here all the time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/host_runtime.h"
#include "packet.h"

namespace emu {

class Random {  // xorshift64*
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull | 1) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1dull;
  }
  uint32_t below(uint64_t bound) { return static_cast<uint32_t>((next() >> 33) % bound); }

 private:
  uint64_t state_;
};

struct Writer {
  uint32_t thread;  // of the launch
  uint32_t block;
  uint32_t barriers;  // that its block has passed
};

class PendingStores {
 public:
  explicit PendingStores(uint64_t seed);

  void store(void* address, Packet packet, shunt::host::Grain grain, const Writer& writer);
  // What memory holds, under what this thread has stored, and its block before the last barrier.
  Packet load(const void* address, const Writer& reader);
  // Time passes by one sweep: what is due arrives.
  void tick();
  void deliver_all();
  bool empty() const { return waiting_ == 0; }
  Random& random() { return random_; }

 private:
  struct Word {
    uintptr_t address;
    uint64_t value;
    bool wide;  // 8 bytes
  };
  // The newest pending value of 4 bytes of memory.
  struct Cell {
    uintptr_t address = 0;
    uint32_t count = 0;  // words on their way; 0: nothing pending
    uint32_t value = 0;
    uint64_t due = 0;
    Writer writer{};
  };
  static constexpr uint64_t kHorizon = 256;  // ticks; no word waits longer

  void add(uintptr_t address, uint64_t value, bool wide, const Writer& writer);
  void deliver(const Word& word);
  Cell& cell(uintptr_t address);
  uint32_t& near(uintptr_t address);
  void grow();
  uint32_t overlay(uintptr_t address, uint32_t in_memory, const Writer& reader);

  Random random_;
  uint64_t now_ = 0;
  size_t waiting_ = 0;
  size_t used_ = 0;
  std::vector<Cell> cells_;
  // Words on their way to packets of one hash. Mostly none are: a kernel polls what others write.
  std::array<uint32_t, 1024> near_{};
  std::array<std::vector<Word>, kHorizon> due_;
};

}  // namespace emu
