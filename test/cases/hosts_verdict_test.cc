// Cases 39 and 41 without processes: what is made of the records that ranks gather, whoever sent
// them. A hostile record or one of another version is a refusal, never a crash, and every rank
// decides alike.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "shim/engine/measure.h"
#include "shim/engine/verdict.h"
#include "test/catch.h"
#include "test/protocol/random.h"

using namespace shunt;

namespace {

constexpr uint64_t kMostCap = 16 << 20;

Facts facts_of(uint32_t rank) {
  Facts f{};
  f.magic = kRecordMagic;
  f.version = kRecordVersion;
  std::strcpy(f.boot_id, "6dd4fd3a-0f0e-4b9c-8f5e-5a4d6f0f6b01");
  f.process_nonce = 100 + rank;
  f.pid_namespace = 4026531836;
  f.pid = 1000 + rank;
  f.gpu[0] = static_cast<unsigned char>(rank + 1);
  f.compute_major = 9;
  f.max_threads = 256;
  f.max_lanes = 64;
  f.nccl_version = 22809;
  f.fresh_id = 77 + rank;
  f.placement = kAnyPlacement;
  return f;
}

std::vector<Facts> table_of(uint32_t ranks) {
  std::vector<Facts> table;
  for (uint32_t r = 0; r < ranks; ++r) table.push_back(facts_of(r));
  return table;
}

void require_refusal(const Verdict& verdict, Level level, const std::string& words) {
  INFO(verdict.reason);
  CHECK_FALSE(verdict.shunt);
  CHECK(verdict.level == level);
  CHECK_THAT(verdict.reason, ContainsSubstring(words));
  CHECK_FALSE(shunts(verdict, 1, 7, 0));
}
void require_refusal(const std::vector<Facts>& table, Level level, const std::string& words) {
  require_refusal(judge_facts(table), level, words);
}

// With one field of one rank changed.
template <typename F>
std::vector<Facts> changed(uint32_t ranks, uint32_t rank, F&& change) {
  std::vector<Facts> table = table_of(ranks);
  change(table[rank]);
  return table;
}

// What holds for every verdict, whatever was gathered.
void require_sane(const Verdict& verdict, const std::vector<Facts>& table) {
  if (!verdict.shunt) {
    REQUIRE(!verdict.reason.empty());
    REQUIRE(verdict.reason.size() < 300);
    for (const char c : verdict.reason) REQUIRE((c >= 32 && c <= 126));
    return;
  }
  REQUIRE(verdict.cap > 0);
  REQUIRE(verdict.cap <= kMostCap);
  REQUIRE((verdict.limits.max_threads >= 32 && verdict.limits.max_threads <= kMaxDataThreads));
  REQUIRE((verdict.limits.max_lanes >= 1 && verdict.limits.max_lanes <= kMaxLanes));
  REQUIRE(verdict.geometry.ranks == table.size());
  REQUIRE(verdict.geometry.lanes == verdict.limits.max_lanes);
  REQUIRE(verdict.geometry.slab_bytes() <= std::numeric_limits<uint32_t>::max());
  for (const Facts& f : table) {
    REQUIRE(f.magic == kRecordMagic);
    REQUIRE(f.version == kRecordVersion);
    REQUIRE(f.enable != EnableFact::kOff);
    REQUIRE(f.failed == 0);
    REQUIRE((f.p2p_disabled == 0 || verdict.geometry.placement == Placement::kHost));
    REQUIRE((f.cap == 0 || verdict.cap <= f.cap));
    REQUIRE(verdict.limits.max_threads <= f.max_threads);
    REQUIRE(verdict.limits.max_lanes <= f.max_lanes);
    REQUIRE(std::memcmp(f.boot_id, table[0].boot_id, sizeof(f.boot_id)) == 0);
  }
  // Every call that is shunted has room.
  for (uint32_t t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const size_t most = verdict.cap / size_of(type);
    REQUIRE_FALSE(shunts(verdict, most + 1, static_cast<int>(t), 0));
    if (most == 0 || !shunts(verdict, most, static_cast<int>(t), 0)) continue;
    const LaunchPlan plan = plan_launch(most * size_of(type), type, verdict.limits);
    REQUIRE(plan.lanes <= verdict.geometry.lanes);
    REQUIRE(plan.packets_per_lane <= (plan.protocol == Protocol::kSentinel
                                          ? verdict.geometry.sentinel_packets
                                          : verdict.geometry.flagged_packets));
  }
}

}  // namespace

TEST_CASE("hosts are told apart by their boot ids") {
  for (uint32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const Verdict verdict = judge_facts(table_of(ranks));
    REQUIRE(verdict.shunt);
    CHECK(verdict.cap == (ranks == 2 ? kFixedCap2 : kFixedCapMore));
    require_sane(verdict, table_of(ranks));
    for (uint32_t r = 1; r < ranks; ++r) {
      const auto other = [](Facts& f) { f.boot_id[35] = '2'; };
      require_refusal(changed(ranks, r, other), Level::kInfo,
                      "ranks 0 and " + std::to_string(r) + " are on different hosts");
    }
  }
  require_refusal(changed(4, 0, [](Facts& f) { f.boot_id[0] = 'x'; }), Level::kInfo,
                  "different hosts");
  require_refusal(changed(2, 1, [](Facts& f) { f.boot_id[0] = 0; }), Level::kInfo,
                  "different hosts");
  // Not ended by a zero byte: the last of the 40 counts too.
  std::vector<Facts> full = table_of(2);
  for (Facts& f : full) std::memset(f.boot_id, 'b', sizeof(f.boot_id));
  CHECK(judge_facts(full).shunt);
  full[1].boot_id[39] = 'c';
  require_refusal(full, Level::kInfo, "different hosts");

  // Two hosts of two; the ranks of one host by themselves, as a split gathers them.
  std::vector<Facts> world = table_of(4);
  for (uint32_t r = 2; r < 4; ++r) world[r].boot_id[3] = '9';
  require_refusal(world, Level::kInfo, "ranks 0 and 2 are on different hosts");
  CHECK(judge_facts(std::span(world).first(2)).shunt);
  CHECK(judge_facts(std::span(world).last(2)).shunt);
}

TEST_CASE("other versions and malformed records are refusals") {
  const std::string version = "rank 2 runs another version of nccl-shunt, or none";
  require_refusal(changed(4, 2, [](Facts& f) { f = Facts{}; }), Level::kWarning, version);
  require_refusal(changed(4, 2, [](Facts& f) { f.magic ^= 1; }), Level::kWarning, version);
  require_refusal(changed(4, 2, [](Facts& f) { ++f.version; }), Level::kWarning, version);
  require_refusal(changed(4, 2, [](Facts& f) { std::memset(&f, 0xff, sizeof(f)); }),
                  Level::kWarning, version);
  const std::string malformed = "rank 1 sent a malformed record";
  for (const uint32_t threads : {0u, 16u, 31u, 33u, kMaxDataThreads + 32, 0xffffffe0u}) {
    require_refusal(changed(3, 1, [&](Facts& f) { f.max_threads = threads; }), Level::kWarning,
                    malformed);
  }
  for (const uint32_t lanes : {0u, kMaxLanes + 1, 0xffffffffu}) {
    require_refusal(changed(3, 1, [&](Facts& f) { f.max_lanes = lanes; }), Level::kWarning,
                    malformed);
  }
  for (const uint64_t cap : {kMostCap + 1, kMeasuredCap - 1}) {
    require_refusal(changed(3, 1, [&](Facts& f) { f.cap = cap; }), Level::kWarning, malformed);
  }
  require_refusal(changed(3, 1, [](Facts& f) { f.enable = static_cast<EnableFact>(3); }),
                  Level::kWarning, malformed);
  // A reason of 160 bytes without an end, full of control characters.
  const Verdict hostile = judge_facts(changed(2, 1, [](Facts& f) {
    f.failed = 1;
    std::memset(f.reason, 0x1b, sizeof(f.reason));
  }));
  require_sane(hostile, table_of(2));
  CHECK_THAT(hostile.reason, ContainsSubstring("rank 1: ???"));
}

TEST_CASE("settings that differ") {
  std::vector<Facts> table = table_of(3);
  table[0].cap = 8192;
  table[2].cap = 100;
  CHECK(judge_facts(table).cap == 100);
  CHECK(judge_facts(table).verify == 0);
  CHECK(judge_facts(changed(3, 1, [](Facts& f) { f.verify = 7; })).verify == 7);
  CHECK(judge_facts(changed(3, 2, [](Facts& f) { f.verify = ~0u; })).verify == ~0u);
  table[1].verify = 9;
  table[2].verify = 5;
  CHECK(judge_facts(table).verify == 5);
  CHECK(judge_facts(table).differing);
  for (Facts& f : table) f.cap = 4096;
  CHECK(judge_facts(table).cap == 4096);
  CHECK_FALSE(judge_facts(table).differing);
  CHECK(judge_facts(changed(3, 1, [](Facts& f) { f.cap = kMostCap; })).cap == kFixedCapMore);
  CHECK(judge_facts(changed(3, 1, [](Facts& f) { f.enable = EnableFact::kOn; })).differing);
  require_refusal(changed(3, 2, [](Facts& f) { f.enable = EnableFact::kOff; }), Level::kInfo,
                  "switched off (SHUNT_ENABLE) on rank 2");
  require_refusal(changed(3, 2,
                          [](Facts& f) {
                            f.p2p_disabled = 1;
                            f.placement = static_cast<uint32_t>(Placement::kPull);
                          }),
                  Level::kInfo, "NCCL_P2P_DISABLE is set on rank 2");
  require_refusal(changed(3, 2, [](Facts& f) { f.gpu[0] = 1; }), Level::kInfo,
                  "ranks 0 and 2 share a GPU");
  // fp8 only where every GPU and every NCCL has it.
  CHECK(judge_facts(table_of(2)).float8);
  CHECK_FALSE(judge_facts(changed(2, 1, [](Facts& f) { f.compute_major = 8; })).float8);
  CHECK_FALSE(judge_facts(changed(2, 0, [](Facts& f) { f.nccl_version = 21805; })).float8);
}

TEST_CASE("a cap is measured only where all ranks ask for it") {
  std::vector<Facts> table = table_of(3);
  for (Facts& f : table) f.cap = kMeasuredCap;
  CHECK(judge_facts(table).measured);
  CHECK(judge_facts(table).cap == most_measured(3));
  table[1].cap = 8192;
  CHECK_FALSE(judge_facts(table).measured);
  CHECK(judge_facts(table).cap == 8192);
  table[1].cap = 0;
  CHECK_FALSE(judge_facts(table).measured);
  CHECK(judge_facts(table).cap == kFixedCapMore);
  for (const uint32_t ranks : {2u, 4u, 8u, 16u}) {
    const DeviceLimits limits;
    CHECK(plan_geometry(ranks, most_measured(ranks), limits).slab_bytes() <= size_t{32} << 20);
  }
}

TEST_CASE("what is known of the cap counts only if all ranks know the same") {
  const KnownCap profile{CapSource::kProfile, 4096, 65536}, measured{CapSource::kMeasured, 4096, 65536};
  const auto of = [](std::vector<KnownCap> table) { return agreed(table); };
  CHECK(of({profile, profile}) == Found{65536, 4096});
  CHECK(of({profile, measured, profile}) == Found{65536, 4096});  // a process may be older than another
  CHECK_FALSE(of({profile, {}}));
  CHECK_FALSE(of({{}, {}}));
  CHECK_FALSE(of({{}, profile}));
  CHECK_FALSE(of({profile, {CapSource::kProfile, 4096, 32768}}));
  CHECK_FALSE(of({profile, profile, {CapSource::kMeasured, 8192, 65536}}));
  CHECK(of({{CapSource::kProfile, ~0u, 0}, {CapSource::kProfile, ~0u, 0}}) == Found{0, ~0u});
}

TEST_CASE("times decide what is shunted") {
  using Times = std::array<float, kTimedPaths>;  // NCCL, one shot, two shots
  CHECK(judge_times(std::vector<Times>{}).cap == 0);
  CHECK(judge_times(std::vector<Times>{{10, 10, 10}}).cap == 0);    // no gain is no reason
  CHECK(judge_times(std::vector<Times>{{10, 9.8f, 20}}).cap == 0);  // nor is noise
  const std::vector<Times> typical = {{6, 2, 3}, {7, 3, 3.5f}, {8, 5, 4}, {10, 9, 6}, {12, 13, 14}, {20, 1, 1}};
  CHECK(judge_times(typical) == Found{kTimedSizes[3], static_cast<uint32_t>(kTimedSizes[2])});
  // Two shots must go on winning up to the cap.
  CHECK(judge_times(std::vector<Times>{{6, 3, 2}, {6, 2, 3}}).two_shot_from == ~0u);
  CHECK(judge_times(std::vector<Times>{{6, 3, 2}}).two_shot_from == kTimedSizes[0]);
  // The slowest rank counts, and what is no time is none.
  Timing a{{}, {5, 2, 3}}, b{{}, {4, 3, 2}};
  CHECK(*slowest(std::vector<Timing>{a, b}) == Times{5, 3, 3});
  for (const float odd : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    b.us[1] = odd;
    CHECK_FALSE(slowest(std::vector<Timing>{a, b}));
  }
}

TEST_CASE("placements are tried in one order by all") {
  const auto placements = [](const std::vector<Facts>& table) { return judge_facts(table).placements; };
  using P = Placement;
  CHECK(placements(table_of(3)) == std::vector<P>{P::kPush, P::kHost});
  CHECK(placements(changed(3, 1, [](Facts& f) { f.p2p_disabled = 1; })) == std::vector<P>{P::kHost});
  // One rank's wish counts for all; of several, the one that every machine has.
  for (const P wish : {P::kPush, P::kPull, P::kHost}) {
    const auto table = changed(3, 2, [&](Facts& f) { f.placement = static_cast<uint32_t>(wish); });
    CHECK(placements(table) == std::vector<P>{wish});
    CHECK(judge_facts(table).geometry.placement == wish);
    CHECK(judge_facts(table).differing);
  }
  std::vector<Facts> two_wishes = table_of(3);
  two_wishes[0].placement = static_cast<uint32_t>(P::kHost);
  two_wishes[2].placement = static_cast<uint32_t>(P::kPush);
  CHECK(placements(two_wishes) == std::vector<P>{P::kHost});
  require_refusal(changed(2, 1, [](Facts& f) { f.placement = kPlacements; }), Level::kWarning, "malformed");

  Verdict verdict = judge_facts(table_of(3));
  verdict.shunt = false;
  verdict.reason = "push failed";
  REQUIRE(next_placement(verdict));
  CHECK(verdict.shunt);
  CHECK(verdict.geometry == plan_geometry(3, verdict.cap, verdict.limits, P::kHost));
  CHECK_FALSE(next_placement(verdict));

  // What failed before on any rank is not tried again.
  const auto links = [&](const std::vector<Facts>& table, uint32_t broken, uint32_t reset = 0) {
    Verdict v = judge_facts(table);
    std::vector<Answer> answers(table.size(), Answer{1, 0, 0, 0, -1, 0, {}});
    answers[1].broken = broken;
    answers[1].reset = reset;
    judge_links(v, table, answers);
    return v;
  };
  CHECK(links(table_of(3), 1).placements == std::vector<P>{P::kHost});
  CHECK(links(table_of(3), 1).geometry.placement == P::kHost);
  CHECK_FALSE(links(table_of(3), 5).shunt);
  CHECK(links(table_of(3), 2).geometry.placement == P::kPush);

  // Nor is what one rank's file says that the machine went down in.
  CHECK(links(table_of(3), 0, 1).placements == std::vector<P>{P::kHost});
  CHECK(links(table_of(3), 0, 1).geometry.placement == P::kHost);
  CHECK(links(table_of(3), 0, 1).reset_rank == 1);
  CHECK(links(table_of(3), 4, 1).reset_rank == 1);
  require_refusal(links(table_of(3), 4, 1), Level::kInfo, "went down while push was probed");
  require_refusal(links(table_of(3), 0, 5), Level::kInfo, "went down while push was probed");
  CHECK(links(table_of(3), 0, 2).geometry.placement == P::kPush);
  CHECK(links(table_of(3), 0, 2).reset_rank == -1);  // of pull, which is not tried
  CHECK(links(table_of(3), 1).reset_rank == -1);
}

TEST_CASE("NVLink keeps the library out unless all insist") {
  const auto judge = [](std::vector<Facts> facts, const std::vector<uint32_t>& all_nvlink) {
    Verdict verdict = judge_facts(facts);
    std::vector<Answer> answers;
    for (const uint32_t all : all_nvlink) answers.push_back({1, all, 0, 0, -1, 0, {}});
    judge_links(verdict, facts, answers);
    return verdict;
  };
  std::vector<Facts> automatic = table_of(3), on = table_of(3), mixed = table_of(3);
  for (Facts& f : on) f.enable = EnableFact::kOn;
  mixed[1].enable = EnableFact::kOn;
  CHECK_FALSE(judge(automatic, {1, 1, 1}).shunt);
  CHECK(judge(automatic, {1, 1, 1}).level == Level::kInfo);
  CHECK_FALSE(judge(mixed, {1, 1, 1}).shunt);
  CHECK(judge(on, {1, 1, 1}).shunt);
  for (const std::vector<uint32_t>& some : {std::vector<uint32_t>{0, 1, 1}, {1, 0, 0}, {0, 0, 0}}) {
    CHECK(judge(automatic, some).shunt);
    CHECK(judge(mixed, some).shunt);
  }
}

TEST_CASE("one no is everybody's no") {
  for (uint32_t r = 0; r < 4; ++r) {
    for (const uint32_t ok : {0u, 2u, 0xffffffffu}) {
      std::vector<Answer> answers(4, Answer{1, 0, 0, 0, -1, 0, {}});
      answers[r].ok = ok;
      answers[r].peer = static_cast<int32_t>((r + 1) % 4);
      std::memset(answers[r].reason, 'x', sizeof(answers[r].reason));
      Verdict verdict = judge_facts(table_of(4));
      judge_answers(verdict, answers, "mapping");
      CHECK_FALSE(verdict.shunt);
      CHECK_THAT(verdict.reason, ContainsSubstring("rank " + std::to_string((r + 1) % 4) +
                                                   " -> rank " + std::to_string(r)));
      require_sane(verdict, table_of(4));
      for (const int32_t peer : {-1, 4, 1 << 30, INT32_MIN}) {
        answers[r].peer = peer;
        Verdict odd = judge_facts(table_of(4));
        judge_answers(odd, answers, "mapping");
        CHECK(odd.reason.find("->") == std::string::npos);
      }
    }
    Verdict verdict = judge_facts(table_of(4));
    std::vector<SlabOffer> offers(4);
    for (SlabOffer& offer : offers) {
      offer.answer.ok = 1;
      offer.bytes = verdict.geometry.slab_bytes();
    }
    judge_offers(verdict, offers);
    REQUIRE(verdict.shunt);
    offers[r].bytes -= 16;
    judge_offers(verdict, offers);
    CHECK_FALSE(verdict.shunt);
  }
}

TEST_CASE("a slab set is reused only where all offer it in one state") {
  std::vector<Facts> table = table_of(3);
  for (Facts& f : table) {
    f.free_sets[0] = 50, f.free_set_states[0] = 1;
    f.free_sets[1] = 40, f.free_set_states[1] = 2;
  }
  using Sets = std::vector<uint64_t>;
  CHECK(judge_facts(table).free_sets == Sets{40, 50});  // in one order, so that all choose alike
  std::swap(table[1].free_sets[0], table[1].free_sets[1]);
  std::swap(table[1].free_set_states[0], table[1].free_set_states[1]);
  CHECK(judge_facts(table).free_sets == Sets{40, 50});  // in whatever order they are offered
  table[2].free_set_states[1] = 3;
  CHECK(judge_facts(table).free_sets == Sets{50});
  table[0].free_sets[0] = 0;  // not clean there
  CHECK(judge_facts(table).free_sets.empty());
}

TEST_CASE("what is shunted is bounded, and nothing overflows") {
  const Verdict verdict = judge_facts(table_of(2));
  const size_t huge[] = {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 8 + 1, size_t{1} << 62};
  for (int type = -2; type < 20; ++type) {
    for (int op = -2; op < 12; ++op) {
      for (const size_t count : huge) CHECK_FALSE(shunts(verdict, count, type, op));
      CHECK_FALSE(shunts(verdict, 0, type, op));
      const bool known = type >= 0 && type < 12 && op >= 0 && op < 5;
      CHECK(shunts(verdict, 1, type, op) == known);
    }
  }
}

// Deterministic: a seed gives the same records on every machine.
TEST_CASE("any record gives a decision, the same on every rank") {
  uint32_t shunting = 0;
  for (uint64_t seed = 1; seed <= 20000; ++seed) {
    sim::Rng rng(seed);
    std::vector<Facts> table = table_of(2 + rng.below(kMaxRanks - 1));
    const uint32_t changes = rng.below(4);
    for (uint32_t i = 0; i < changes; ++i) {
      auto* bytes = reinterpret_cast<unsigned char*>(&table[rng.below(table.size())]);
      // One byte, or a run of noise; mostly in the fields, some in the unused rest.
      const size_t length = rng.of256(200) ? 1 : 1 + rng.below(400);
      const size_t at = rng.below((rng.of256(230) ? offsetof(Facts, unused) : sizeof(Facts)) - 1);
      for (size_t b = at; b < std::min(at + length, sizeof(Facts)); ++b) {
        bytes[b] = static_cast<unsigned char>(rng.next());
      }
    }
    const std::vector<Facts> as_another_rank_sees_it = table;
    const Verdict verdict = judge_facts(table), theirs = judge_facts(as_another_rank_sees_it);
    INFO("seed " << seed << ": " << verdict.reason);
    REQUIRE(verdict.shunt == theirs.shunt);
    REQUIRE(verdict.cap == theirs.cap);
    REQUIRE(verdict.reason == theirs.reason);
    REQUIRE(verdict.geometry == theirs.geometry);
    REQUIRE(verdict.free_sets == theirs.free_sets);
    REQUIRE(verdict.placements == theirs.placements);
    require_sane(verdict, table);
    shunting += verdict.shunt;
  }
  CHECK(shunting > 5000);  // not all noise is refused: the rest of a record is nobody's business
  CHECK(shunting < 15000);
}
