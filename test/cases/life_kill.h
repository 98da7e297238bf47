// Case 27: rank 3 of 4 is killed. What its tests share: the job "killed" (life_kill_job.cc), where
// in the victim's life things lie, and what is wanted of the survivors.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "test/cases/job.h"

namespace cases::life {

constexpr int kRanks = 4, kVictim = 3;
// Of the victim: line numbers, once.
enum Flag { kBegan, kPrepared, kDestroying, kDestroyed, kFirstOperation };
constexpr int kReady = 60;  // + rank: has made its communicator

JobOptions options(long kill_at_line, Environment more = {});

// Ten calls and no kill; where in its life the victim's lines lie.
struct Map {
  uint32_t began, prepared, destroying, destroyed;
  std::vector<uint32_t> rounds;
};
Map clean_run();

// All survivors ended by themselves and say who is missing. `end`: how their calls must have ended;
// empty: the victim may have died while the communicator was made. What they checked themselves is
// in their status.
void check_survivors(Job& job, double seconds, const std::string& end);

std::set<std::string> shared_memory_files();  // that could be of such jobs

}  // namespace cases::life
