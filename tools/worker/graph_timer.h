// How long the calls in a graph take on the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/worker/team.h"

namespace shunt::bench {

struct Replays {
  uint32_t warmups = 2;  // not counted
  uint32_t counted = 7;
  uint32_t calls = 50;  // in one graph
};

// Microseconds a call, by member and counted replay. `prepare` enqueues what is to run before each
// replay and does not count.
std::vector<std::vector<double>> replay_times(Team& team, const std::vector<GraphExec>& graphs,
                                              const Replays& replays,
                                              const std::function<void()>& prepare);

}  // namespace shunt::bench
