// How one run mistreats the program: drawn once from the seed, so that some runs are gentle, some
// hold single words back for ever and some leave whole ranks behind.
#pragma once

#include <utility>

#include "test/protocol/random.h"

namespace sim {

// What the machine can do besides running a thread.
enum class Event : uint32_t { kLand, kStream, kOpen, kWake, kRelease };
inline constexpr uint32_t kEvents = 5;

struct Hostility {
  // Shares of 256.
  uint32_t direct;      // packets that land whole and at once
  uint32_t lonely;      // of the others: one word is late, the rest lands at once
  uint32_t held;        // late words that land only when released; the others land at some rate
  uint32_t late_start;  // threads that stall before their first instruction
  // Periods; 0 is never.
  uint32_t preempt;          // memory accesses between changes of thread
  uint32_t stall;            // turns of a thread before it stalls
  uint32_t close_block;      // turns before a block stalls
  uint32_t close_rank;       // turns before a rank stalls
  uint32_t spin;             // unsuccessful polls of which one is followed by another at once
  uint32_t period[kEvents];  // turns between events of each kind
  // When nothing can run, the first possible event of this list happens.
  Event order[kEvents];
};

inline Hostility draw_hostility(Rng& rng) {
  Hostility h;
  h.direct = rng.one_of<uint32_t>({0, 40, 128, 220});
  h.lonely = rng.one_of<uint32_t>({0, 64, 200, 256});
  h.held = rng.one_of<uint32_t>({8, 64, 160, 256});
  h.late_start = rng.one_of<uint32_t>({0, 0, 8, 80});
  h.preempt = rng.one_of<uint32_t>({1, 3, 12, 100, 0});
  h.stall = rng.one_of<uint32_t>({0, 40, 400});
  h.close_block = rng.one_of<uint32_t>({0, 300, 3000});
  h.close_rank = rng.one_of<uint32_t>({0, 300, 3000});
  h.spin = rng.one_of<uint32_t>({0, 4, 50});
  for (uint32_t i = 0; i < kEvents; ++i) {
    h.period[i] = rng.one_of<uint32_t>({0, 2, 20, 300, 4000});
    h.order[i] = static_cast<Event>(i);
  }
  for (uint32_t i = kEvents - 1; i > 0; --i) std::swap(h.order[i], h.order[rng.below(i + 1)]);
  return h;
}

}  // namespace sim
