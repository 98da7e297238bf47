// What the ranks of a communicator tell each other, and the decisions made from it. Every function here
// is pure: each rank calls it with the same gathered table and so gets the same answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/launch_plan.h"
#include "shim/engine/shared_memory.h"

namespace shunt {

inline constexpr uint32_t kRecordMagic = 0x544e4853;  // "SHNT"
inline constexpr uint32_t kRecordVersion = 3;
inline constexpr size_t kReasonBytes = 160;
inline constexpr uint32_t kPoolOffers = 4;

enum class EnableFact : uint32_t { kAuto = 0, kOn = 1, kOff = 2 };
inline constexpr uint32_t kAnyPlacement = ~0u;
inline constexpr uint64_t kMeasuredCap = ~uint64_t{0};

// Round 1. One fixed size for all versions of the library; a reader trusts nothing in it.
struct Facts {
  uint32_t magic;
  uint32_t version;
  char boot_id[40];         // /proc/sys/kernel/random/boot_id
  uint64_t process_nonce;   // random, one a process
  uint64_t pid_namespace;   // inode of /proc/self/ns/pid
  int64_t pid;
  unsigned char gpu[16];    // UUID
  uint32_t compute_major;
  uint32_t compute_minor;
  uint32_t max_threads;     // data threads of a lane
  uint32_t max_lanes;
  uint32_t nccl_version;
  EnableFact enable;
  uint64_t cap;             // bytes; 0: the fixed cap for so many ranks; kMeasuredCap: to be measured
  uint32_t p2p_disabled;    // NCCL_P2P_DISABLE
  uint32_t failed;          // this rank cannot shunt, for `reason`
  char reason[kReasonBytes];
  // Clean slab sets of earlier communicators that this rank holds free, as this very rank of this many.
  uint64_t free_sets[kPoolOffers];       // 0: none
  uint64_t free_set_states[kPoolOffers];  // digest of the lane states: equal on all ranks if clean
  uint64_t fresh_id;   // random; rank 0's names the new slab set
  uint32_t placement;  // SHUNT_PLACEMENT: the value of a Placement, or kAnyPlacement
  uint32_t verify;     // SHUNT_VERIFY; 0: not set
  unsigned char unused[656];
};
static_assert(sizeof(Facts) == 1024);

// Rounds 2 (links), 4 (mapped) and 5 (vote).
struct Answer {
  uint32_t ok;
  uint32_t all_nvlink;  // links: every pair of this rank is joined by NVLink
  uint32_t broken;      // links: placements that failed for these GPUs before, a bit each
  uint32_t reset;       // links: placements in whose probe the machine went down (probe_marker.h), a bit each
  int32_t peer;         // the pair that `reason` is about, -1: none
  uint32_t when;        // probe: calls finished before the one that failed; the first is the cause
  char reason[kReasonBytes];
};

// Round 3.
struct SlabOffer {
  Answer answer;
  uint64_t address;  // for ranks of the same process
  uint64_t bytes;    // of slab and outbox
  unsigned char ipc[64];    // push, pull
  SharedMemoryName shared;  // host
};

enum class Level { kInfo, kWarning };

// What all ranks agreed on.
struct Verdict {
  bool shunt = false;
  uint64_t cap = 0;
  DeviceLimits limits{};
  std::vector<Placement> placements;  // to be tried, in this order; the one in use is geometry's
  Geometry geometry{};
  uint32_t verify = 0;     // one of so many eager calls is verified; 0: none
  bool float8 = false;     // fp8 is reduced by every GPU and NCCL of the communicator
  bool measured = false;   // the cap is to be measured: `cap` is the most that it can be
  bool of_profile = false;  // instead all ranks' profiles said the same
  bool differing = false;  // caps or SHUNT_ENABLE differ between ranks
  std::vector<uint64_t> free_sets;  // slab sets that every rank holds free and clean
  uint64_t reused_set = 0;          // the one of them in use
  int reset_rank = -1;     // the lowest rank that has a placement left out because the machine went down in its probe
  std::string reason;      // why not
  Level level = Level::kInfo;
};

// Bytes, where a cap is neither set nor measured: 2 ranks; 3 and more.
inline constexpr uint32_t kFixedCap2 = 128 << 10;
inline constexpr uint32_t kFixedCapMore = 64 << 10;
// The most that is measured: slabs stay under 32 MiB.
constexpr uint64_t most_measured(size_t ranks) {
  return ranks <= 2 ? 1 << 20 : ranks <= 8 ? 512 << 10 : 256 << 10;
}

// After round 1. shunt: go on with round 2.
Verdict judge_facts(std::span<const Facts> table);
// After each later round: clears shunt and names rank, pair and reason if any rank said no.
void judge_links(Verdict& verdict, std::span<const Facts> facts, std::span<const Answer> table);
void judge_offers(Verdict& verdict, std::span<const SlabOffer> table);
void judge_answers(Verdict& verdict, std::span<const Answer> table, const char* what);

// After a placement failed: goes on with the next one, if there is one. True: verdict.shunt again.
bool next_placement(Verdict& verdict);

// Law 1: shunt or forward, from (verdict, count, datatype, op) alone. `type` and `op` are NCCL's values.
bool shunts(const Verdict& verdict, size_t count, int type, int op);

}  // namespace shunt
