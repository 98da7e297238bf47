#include "test/gpu/soak/plan.h"

#include <algorithm>
#include <bit>

namespace shunt::soak {
namespace {

uint64_t draw_bytes(uint64_t cap, uint32_t size, sim::Rng& rng) {
  const uint32_t kind = rng.below(1000);
  if (kind < 5) return 0;
  if (kind < 60) return size * (1 + rng.below(8));
  if (kind < 800) return 1 + rng.below(std::min<uint64_t>(4096, cap));
  if (kind < 930) return 1 + rng.below(cap / 4);
  if (kind < 975) return 1 + rng.below(cap);
  if (kind < 985) return cap - size * rng.below(3);
  return cap + size + rng.below(cap / 2);
}

// NCCL rounds at every hop, and averages by scaling first: with more than two ranks these depend on
// the way.
bool depends_on_the_way(ReduceOp op, uint32_t ranks) {
  return (op == ReduceOp::kProd && ranks > 2) ||
         (op == ReduceOp::kAvg && !std::has_single_bit(ranks));
}

// A group is decided by what each communicator has in it.
void decide(std::vector<Draw>& draws, uint64_t cap) {
  for (auto first = draws.begin(); first != draws.end();) {
    const auto end = first->group == 0 ? first + 1 : std::find_if(first, draws.end(), [&](const Draw& draw) {
      return draw.group != first->group;
    });
    uint64_t sums[kCommunicators] = {};
    std::for_each(first, end, [&](const Draw& draw) { sums[draw.communicator] += draw.bytes(); });
    std::for_each(first, end, [&](Draw& draw) { draw.up_to_cap = draw.count > 0 && sums[draw.communicator] <= cap; });
    first = end;
  }
}

}  // namespace

bench::Fields to_fields(const Settings& settings) {
  return bench::Fields("soak")
      .set("ranks", uint64_t{settings.ranks})
      .set("calls", settings.calls)
      .set("seconds", settings.seconds)
      .set("cap", settings.cap)
      .set("graph_calls", uint64_t{settings.graph_calls})
      .set("eager_calls", uint64_t{settings.eager_calls})
      .set("communicator_calls", settings.communicator_calls)
      .set("seed", settings.seed);
}

Settings settings_from(const bench::Fields& fields) {
  Settings settings;
  settings.ranks = static_cast<uint32_t>(fields.number("ranks"));
  settings.calls = fields.number("calls");
  settings.seconds = fields.number("seconds");
  settings.cap = fields.number("cap");
  settings.graph_calls = static_cast<uint32_t>(fields.number("graph_calls"));
  settings.eager_calls = static_cast<uint32_t>(fields.number("eager_calls"));
  settings.communicator_calls = fields.number("communicator_calls");
  settings.seed = fields.number("seed");
  return settings;
}

std::vector<DataType> types_of(int nccl_version) {
  constexpr int kFirstWithFloat8 = 22400;
  std::vector<DataType> types;
  for (uint32_t i = 0; i < kDataTypes; ++i) {
    const auto type = static_cast<DataType>(i);
    if (!is_float8(type) || nccl_version >= kFirstWithFloat8) types.push_back(type);
  }
  return types;
}

std::vector<Draw> draw_calls(const Settings& settings, const std::vector<DataType>& types,
                             uint32_t calls, uint64_t most_bytes, bool captured, sim::Rng& all,
                             sim::Rng& own) {
  std::vector<Draw> draws;
  uint64_t total = 0;
  uint32_t group = 0, left = 0;  // of the run of calls that are grouped, or are not
  bool grouped = false;
  while (draws.size() < calls) {
    if (left == 0) {
      grouped = all.below(6) == 0;
      left = grouped ? 1 + all.below(6) : 1 + all.below(40);
      group += grouped ? 1 : 0;
    }
    --left;
    Draw draw;
    draw.communicator = all.below(kCommunicators);
    draw.type = types[all.below(types.size())];
    draw.op = static_cast<ReduceOp>(all.below(kReduceOps));
    const uint32_t size = size_of(draw.type);
    draw.count = draw_bytes(settings.cap, size, all) / size;
    if ((grouped || draw.bytes() > settings.cap) && is_float(draw.type) &&
        depends_on_the_way(draw.op, settings.ranks)) {
      draw.op = ReduceOp::kSum;
    }
    const uint64_t unit = all.below(4) == 0 ? size : 16;
    draw.from = all.below((settings.region_bytes() - draw.bytes()) / unit) * unit;
    draw.group = grouped ? group : 0;
    const uint32_t stream = all.below(kStreams);  // drawn in any case: all ranks draw alike
    draw.stream = captured ? stream : own.below(kStreams);
    draw.in_place = own.below(16) == 0;
    draw.shift = own.below(4) == 0 ? size * own.below(16 / size) : 0;
    total += draw.bytes();
    if (total > most_bytes) break;
    draws.push_back(draw);
  }
  decide(draws, settings.cap);
  return draws;
}

}  // namespace shunt::soak
