// What `nccl-shunt tune` measured on one machine, as far as the plugin follows it. FORMAT.md
// describes the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/cost_table.h"
#include "plugin/fingerprint.h"

namespace shunt::tuner {

// Values are NCCL's (abi.h).
enum class Collective : int { kAllGather = 2, kReduceScatter = 3, kAllReduce = 4 };
inline constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                              Collective::kReduceScatter};

const char* name_of(Collective collective);  // "all-reduce"
const char* algorithm_name(int algorithm);   // "ring"; "?" for what is none
const char* protocol_name(int protocol);     // "LL"
std::string to_text(const Wish& wish);       // "ring/LL", "ring/LL/4"; "default"
// Of a name; -1: none.
int algorithm_of(std::string_view name);
int protocol_of(std::string_view name);

// Calls of `from` to `to` bytes are run as `wish` says. Bytes are NCCL's: of the larger buffer of a
// rank, so those of all ranks together for all-gather and reduce-scatter.
struct Rule {
  uint64_t from = 0;
  uint64_t to = 0;
  Wish wish;
  double us = 0;          // a call so, as measured; for people
  double default_us = 0;  // as NCCL would have chosen
  bool operator==(const Rule&) const = default;
};

// What the preloaded library found where it measured its cap on this machine.
struct ShuntCap {
  std::string placement;  // "push", "pull", "host"
  uint64_t bytes = 0;     // the largest message that is shunted; 0: NCCL is faster at every size
  uint64_t two_shot_from = 0;  // bytes; 0: one shot at every size
  bool operator==(const ShuntCap&) const = default;
};

struct Profile {
  Fingerprint machine;
  // The user's own words for why protocols may be used that NCCL marks as unsafe here; empty: no.
  std::string unsafe_words;
  std::vector<Rule> all_reduce, all_gather, reduce_scatter;  // ascending, disjoint

  std::vector<ShuntCap> caps;  // at most one a placement; for the preloaded library
  // Parts that are passed over, as JSON text; empty: absent. `shunt`: one of a later version, in
  // place of the caps.
  std::string made, measured, shunt;

  const std::vector<Rule>* rules(int function) const;  // null: no such collective
  std::vector<Rule>& rules(Collective collective);
  const std::vector<Rule>& rules(Collective collective) const;
  bool operator==(const Profile&) const = default;
};

inline constexpr uint64_t kMaxBytes = uint64_t{1} << 50;
inline constexpr int kMaxChannels = 64;
inline constexpr uint64_t kMaxShuntCap = uint64_t{16} << 20;  // bytes; SHUNT_CAP's limit
inline constexpr const char* kShuntPlacements[] = {"push", "pull", "host"};

}  // namespace shunt::tuner
