#include "shim/engine/verdict.h"

#include <algorithm>
#include <cstring>

namespace shunt {
namespace {

constexpr uint64_t kMaxCap = 16 << 20;
constexpr uint32_t kFloat8Nccl = 22400;  // ncclFloat8e4m3 is of NCCL 2.24

// Peers' text: bounded, printable.
template <size_t kSize>
std::string text(const char (&from)[kSize]) {
  std::string out(from, strnlen(from, kSize));
  std::replace_if(out.begin(), out.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
  return out;
}

void refuse(Verdict& verdict, Level level, std::string reason) {
  verdict.shunt = false;
  verdict.level = level;
  verdict.reason = std::move(reason);
}

std::string rank_text(size_t rank) { return "rank " + std::to_string(rank); }

// The sets that all ranks offer in the same state, in an order that all share.
std::vector<uint64_t> common_free_sets(std::span<const Facts> table) {
  std::vector<uint64_t> sets;
  for (uint32_t i = 0; i < kPoolOffers; ++i) {
    const uint64_t set = table[0].free_sets[i], state = table[0].free_set_states[i];
    if (set == 0) continue;
    const bool common = std::all_of(table.begin(), table.end(), [&](const Facts& f) {
      for (uint32_t j = 0; j < kPoolOffers; ++j) {
        if (f.free_sets[j] == set && f.free_set_states[j] == state) return true;
      }
      return false;
    });
    if (common) sets.push_back(set);
  }
  std::sort(sets.begin(), sets.end());
  return sets;
}

bool refuse_by_rank(Verdict& verdict, std::span<const Facts> table) {
  for (size_t r = 0; r < table.size(); ++r) {
    const Facts& f = table[r];
    if (f.magic != kRecordMagic || f.version != kRecordVersion) {
      refuse(verdict, Level::kWarning, rank_text(r) + " runs another version of nccl-shunt, or none");
    } else if (f.enable == EnableFact::kOff) {
      refuse(verdict, Level::kInfo, "switched off (SHUNT_ENABLE) on " + rank_text(r));
    } else if (f.failed != 0) {
      refuse(verdict, Level::kWarning, rank_text(r) + ": " + text(f.reason));
    } else if (f.max_threads < 32 || f.max_threads > kMaxDataThreads || f.max_threads % 32 != 0 ||
               f.max_lanes == 0 || f.max_lanes > kMaxLanes ||
               (f.cap > kMaxCap && f.cap != kMeasuredCap) ||
               f.enable > EnableFact::kOff ||
               (f.placement >= kPlacements && f.placement != kAnyPlacement)) {
      refuse(verdict, Level::kWarning, rank_text(r) + " sent a malformed record");
    } else if (std::memcmp(f.boot_id, table[0].boot_id, sizeof(f.boot_id)) != 0) {
      refuse(verdict, Level::kInfo, "ranks 0 and " + std::to_string(r) + " are on different hosts");
    } else {
      continue;
    }
    return true;
  }
  return false;
}

// Where ranks ask for different placements, for the one that every machine has.
void choose_placements(Verdict& verdict, std::span<const Facts> table) {
  uint32_t wanted = kAnyPlacement;
  size_t no_p2p = table.size();
  for (size_t r = 0; r < table.size(); ++r) {
    const Facts& f = table[r];
    verdict.differing |= f.placement != table[0].placement;
    if (f.placement != kAnyPlacement && (wanted == kAnyPlacement || f.placement > wanted)) wanted = f.placement;
    if (f.p2p_disabled != 0 && no_p2p == table.size()) no_p2p = r;
  }
  const bool p2p = no_p2p == table.size();
  if (wanted != kAnyPlacement) {
    verdict.placements = {static_cast<Placement>(wanted)};
  } else if (p2p) {
    verdict.placements = {Placement::kPush, Placement::kHost};
  } else {
    verdict.placements = {Placement::kHost};
  }
  if (!p2p && verdict.placements[0] != Placement::kHost) {
    refuse(verdict, Level::kInfo,
           "NCCL_P2P_DISABLE is set on " + rank_text(no_p2p) + ", and SHUNT_PLACEMENT asks for P2P");
  }
}

void use_placement(Verdict& verdict, Placement placement) {
  verdict.geometry =
      plan_geometry(verdict.geometry.ranks, verdict.cap, verdict.limits, placement);
}

}  // namespace

Verdict judge_facts(std::span<const Facts> table) {
  Verdict verdict;
  if (refuse_by_rank(verdict, table)) return verdict;
  for (size_t a = 0; a < table.size(); ++a) {
    for (size_t b = a + 1; b < table.size(); ++b) {
      if (std::memcmp(table[a].gpu, table[b].gpu, sizeof(table[a].gpu)) == 0) {
        refuse(verdict, Level::kInfo,
               "ranks " + std::to_string(a) + " and " + std::to_string(b) + " share a GPU");
        return verdict;
      }
    }
  }
  const uint64_t fixed = table.size() <= 2 ? kFixedCap2 : kFixedCapMore;
  // Where one rank has a cap of its own there is nothing to measure.
  verdict.measured = std::all_of(table.begin(), table.end(),
                                 [](const Facts& f) { return f.cap == kMeasuredCap; });
  const auto cap_of = [&](const Facts& f) {
    return verdict.measured ? most_measured(table.size())
           : f.cap == 0 || f.cap == kMeasuredCap ? fixed
                                                 : f.cap;
  };
  verdict.cap = cap_of(table[0]);
  verdict.float8 = true;
  for (const Facts& f : table) {
    verdict.differing |= cap_of(f) != cap_of(table[0]) || f.enable != table[0].enable;
    verdict.cap = std::min(verdict.cap, cap_of(f));
    verdict.verify = std::min(verdict.verify - 1, f.verify - 1) + 1;  // 0 is none, so the largest
    verdict.limits.max_threads = std::min(verdict.limits.max_threads, f.max_threads);
    verdict.limits.max_lanes = std::min(verdict.limits.max_lanes, f.max_lanes);
    verdict.float8 &= f.compute_major >= 9 && f.nccl_version >= kFloat8Nccl;
  }
  verdict.geometry.ranks = static_cast<uint32_t>(table.size());
  verdict.free_sets = common_free_sets(table);
  verdict.shunt = true;
  choose_placements(verdict, table);
  use_placement(verdict, verdict.placements[0]);
  return verdict;
}

void judge_links(Verdict& verdict, std::span<const Facts> facts, std::span<const Answer> table) {
  const bool by_choice = std::all_of(facts.begin(), facts.end(), [](const Facts& f) {
    return f.enable == EnableFact::kOn;
  });
  const bool all_nvlink =
      std::all_of(table.begin(), table.end(), [](const Answer& a) { return a.all_nvlink != 0; });
  if (all_nvlink && !by_choice) {
    refuse(verdict, Level::kInfo, "all GPUs are joined by NVLink (SHUNT_ENABLE=on overrides)");
    return;
  }
  judge_answers(verdict, table, "links");
  if (!verdict.shunt) return;
  uint32_t broken = 0, reset = 0, tried = 0;
  for (const Placement p : verdict.placements) tried |= 1u << static_cast<uint32_t>(p);
  for (size_t r = table.size(); r-- > 0;) {
    broken |= table[r].broken;
    reset |= table[r].reset;
    if ((table[r].reset & tried) != 0) verdict.reset_rank = static_cast<int>(r);
  }
  const auto has = [](uint32_t mask, Placement p) { return (mask >> static_cast<uint32_t>(p) & 1) != 0; };
  const Placement first = verdict.placements[0];
  std::erase_if(verdict.placements, [&](Placement p) { return has(broken | reset, p); });
  if (verdict.placements.empty()) {
    refuse(verdict, Level::kInfo,
           has(reset, first) ? "the machine went down while " + std::string(name_of(first)) + " was probed"
                             : std::string(name_of(first)) + " failed for an earlier communicator of these GPUs");
  } else {
    use_placement(verdict, verdict.placements[0]);
  }
}

bool next_placement(Verdict& verdict) {
  if (verdict.placements.size() < 2) return false;
  verdict.placements.erase(verdict.placements.begin());
  use_placement(verdict, verdict.placements[0]);
  verdict.reused_set = 0;
  verdict.reason.clear();
  verdict.shunt = true;
  return true;
}

void judge_answers(Verdict& verdict, std::span<const Answer> table, const char* what) {
  size_t first = table.size();
  for (size_t r = 0; r < table.size(); ++r) {
    if (table[r].ok != 1 && (first == table.size() || table[r].when < table[first].when)) first = r;
  }
  if (first == table.size()) return;
  const Answer& answer = table[first];
  std::string pair;
  if (answer.peer >= 0 && static_cast<size_t>(answer.peer) < table.size()) {
    pair = ", rank " + std::to_string(answer.peer) + " -> " + rank_text(first);
  }
  const std::string why = text(answer.reason);
  refuse(verdict, Level::kWarning,
         rank_text(first) + " (" + what + ")" + pair + ": " + (why.empty() ? "no answer" : why));
}

void judge_offers(Verdict& verdict, std::span<const SlabOffer> table) {
  for (size_t r = 0; r < table.size(); ++r) {
    const size_t wanted = verdict.geometry.slab_bytes() + verdict.geometry.host_bytes();
    if (table[r].answer.ok == 1 && table[r].bytes == wanted) continue;
    const std::string why = text(table[r].answer.reason);
    refuse(verdict, Level::kWarning,
           rank_text(r) + " (memory): " + (why.empty() ? "no slab of the agreed size" : why));
    return;
  }
}

bool shunts(const Verdict& verdict, size_t count, int type, int op) {
  if (!verdict.shunt || count == 0) return false;
  if (type < 0 || type >= static_cast<int>(kDataTypes)) return false;
  if (op < 0 || op >= static_cast<int>(kReduceOps)) return false;  // premul sum and user operations
  const auto datatype = static_cast<DataType>(type);
  if (is_float8(datatype) && !verdict.float8) return false;
  return count <= verdict.cap / size_of(datatype);
}

}  // namespace shunt
