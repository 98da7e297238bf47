// The programs: which calls each rank makes, in which order, on which streams.
#include <algorithm>

#include "test/protocol/world.h"

namespace sim {
namespace {

void every_rank(World& world, Action action, uint32_t streams_per_rank = 1, uint32_t stream = 0) {
  for (uint32_t rank = 0; rank < world.ranks(); ++rank) {
    world.streams()[rank * streams_per_rank + stream].push_back(action);
  }
}
void every_rank_calls(World& world, uint32_t step) {
  every_rank(world, {Action::Kind::kStep, step});
}

// Near the places where 16-bit periods, signed and unsigned words end; lanes differ as in real
// life.
void draw_counters(World& world, bool may_be_fresh = true) {
  const uint32_t base = world.rng().one_of<uint32_t>({0, 1u << 16, 1u << 31, 0});
  const bool fresh = may_be_fresh && world.rng().of256(64);
  for (uint32_t& counter : world.first_counters) {
    if (!fresh) counter = base - 1 - world.rng().below(12);
  }
}

// Eager calls and replays, all sizes, types and operations mixed.
void mixed(World& world, const Options& options) {
  draw_counters(world);
  std::vector<uint32_t> graphs;
  for (uint32_t i = 0; i < options.calls; ++i) {
    uint32_t recorded;
    if (!graphs.empty() && world.rng().of256(110)) {
      recorded = graphs[world.rng().below(graphs.size())];
    } else {
      recorded = world.record(world.draw_calls());
      if (world.rng().of256(128)) graphs.push_back(recorded);
    }
    every_rank_calls(world, world.add_step(recorded));
  }
}

// A few calls across the end of the counter or of one of its periods.
void edge(World& world, const Options&) {
  draw_counters(world, false);
  for (uint32_t i = 0; i < 16; ++i) {
    every_rank_calls(world, world.add_step(world.record(world.draw_calls())));
  }
}

// One captured call, replayed and replayed.
void replay(World& world, const Options& options) {
  const uint32_t recorded = world.record(world.draw_calls());
  for (uint32_t i = 0; i < options.calls; ++i) every_rank_calls(world, world.add_step(recorded));
}

// A slot that only rare large calls use meets the flag that it held one counter wrap ago. In
// between: calls in all lanes with few packets, across the point where flagged regions are zeroed.
void wrap(World& world, const Options&) {
  const uint32_t parts = world.slabs().geometry().parts;
  const auto large = [&] {
    return world.draw_call(shunt::DataType::kInt32, world.slabs().cap() / 4 - world.rng().below(2));
  };
  const auto small = [&] {
    const uint64_t packets =
        (world.slabs().geometry().lanes - 1) * world.slabs().limits().max_threads + 1;
    return world.draw_call(shunt::DataType::kInt32,
                           std::min<uint64_t>(packets * 2, world.slabs().cap() / 4));
  };
  const auto calls = [&](uint32_t count, auto&& make) {
    for (uint32_t i = 0; i < count; ++i)
      every_rank_calls(world, world.add_step(world.record({make()})));
  };
  calls(parts, large);
  every_rank(world, {Action::Kind::kJump, shunt::kFlagPeriod - parts});
  calls(2 * parts + 1, small);
  // The last call before the wrap has the last counter, so that the large ones are in step again.
  uint32_t target = 0u - 2 * parts;
  every_rank(world, {Action::Kind::kJump, target});
  const uint32_t behind = shunt::part_of(shunt::kFlagPeriod - parts + 2 * parts + 1, parts);
  uint32_t counter = target;
  while (shunt::part_of(counter, parts) != behind) ++counter;
  uint32_t left = 0;
  while (counter != shunt::kFirstCounter) counter = shunt::next_counter(counter), ++left;
  calls(left, small);
  calls(2 * parts, large);
}

// A rank freezes in mid-call, the others abort, it comes back; all go on launching.
void abort_program(World& world, const Options& options) {
  if (world.rng().of256(32)) world.set_timeouts(1'000'000);
  mixed(world, options);
  Disturbance& d = world.disturbance;
  d.kind = Disturbance::Kind::kAbort;
  d.victim = world.rng().below(world.ranks());
  d.at_step = world.rng().below(options.calls);
  d.delay = world.rng().below(world.rng().one_of<uint32_t>({1, 100, 1000, 5000}));
  d.patience = world.rng().below(world.rng().one_of<uint32_t>({1, 1000, 20000}));
}

// The messages of one call in another order: as many bytes in as many packets, but not the same ones.
Calls otherwise_ordered(const Calls& calls) {
  Calls other = calls;
  for (size_t i = 1; i < other.size(); ++i) {
    if (other[i].count != other[0].count) {
      std::swap(other[i].count, other[0].count);
      break;
    }
  }
  return other;
}

// One rank skips a call, makes another one, makes two in the opposite order, or has the messages of one so.
void mismatch(World& world, const Options& options) {
  draw_counters(world);
  world.disturbance.kind = Disturbance::Kind::kMismatch;
  for (uint32_t i = 0; i < options.calls; ++i) {
    every_rank_calls(world, world.add_step(world.record(world.draw_calls())));
  }
  std::vector<Action>& odd = world.streams()[world.rng().below(world.ranks())];
  for (Action& action : odd) {
    if (world.rng().of256(128)) continue;
    const Calls calls = world.calls_of(action.value), other = otherwise_ordered(calls);
    const auto same = [](const Call& a, const Call& b) { return a.count == b.count; };
    if (std::equal(calls.begin(), calls.end(), other.begin(), same)) continue;
    action.value = world.add_step(world.record(other));
    return;
  }
  const uint32_t at = world.rng().below(odd.size() - 1);
  switch (world.rng().below(3)) {
    case 0:
      odd.erase(odd.begin() + at);
      break;
    case 1:
      std::swap(odd[at], odd[at + 1]);
      break;
    default:
      odd[at].value = world.add_step(world.record(world.draw_calls()));
      break;
  }
}

// Two graphs replayed at once on two streams, on one rank or on all.
void overlap(World& world, const Options& options) {
  draw_counters(world);
  world.disturbance.kind = Disturbance::Kind::kOverlap;
  const bool everywhere = world.rng().of256(128);
  const bool alike = world.rng().of256(170);  // equal calls pair up most easily
  const uint32_t culprit = world.rng().below(world.ranks());
  const Call first = world.draw_call();
  for (uint32_t i = 0; i < options.calls; ++i) {
    const uint32_t step = world.add_step(
        world.record(alike ? Calls{world.draw_call(first.type, first.count)} : world.draw_calls()));
    for (uint32_t rank = 0; rank < world.ranks(); ++rank) {
      const bool second = i % 2 == 1 && (everywhere || rank == culprit);
      world.streams()[rank * 2 + second].push_back({Action::Kind::kStep, step});
    }
  }
}

struct Program {
  const char* name;
  void (*build)(World& world, const Options& options);
  uint32_t streams_per_rank;
};
constexpr Program kPrograms[] = {{"mixed", mixed, 1},         {"edge", edge, 1},
                                 {"replay", replay, 1},       {"wrap", wrap, 1},
                                 {"abort", abort_program, 1}, {"mismatch", mismatch, 1},
                                 {"overlap", overlap, 2}};

const Program* find(const std::string& name) {
  for (const Program& program : kPrograms) {
    if (program.name == name) return &program;
  }
  return nullptr;
}

}  // namespace

bool is_program(const std::string& name) { return find(name) != nullptr; }

Outcome run_program(const Options& options, uint32_t ranks, uint64_t seed) {
  const Program& program = *find(options.program);
  World world(options, ranks, program.streams_per_rank, seed);
  program.build(world, options);
  return world.run();
}

}  // namespace sim
