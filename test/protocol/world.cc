#include "test/protocol/world.h"

#include <algorithm>

namespace sim {

using shunt::HostOrder;
using shunt::Stop;

namespace {

shunt::DeviceLimits draw_limits(const Options& options, Rng& rng) {
  shunt::DeviceLimits limits;
  limits.max_threads = rng.one_of<uint32_t>({32, 32, 32, 64});
  limits.max_lanes = options.max_lanes != 0 ? options.max_lanes : 1 + rng.below(3);
  // From nothing, from the middle sizes, or never.
  limits.two_shot_from = options.shots == "one"   ? ~0u
                         : options.shots == "two" ? 0
                                                  : rng.one_of<uint32_t>({0, 512, 1024, ~0u});
  return limits;
}

shunt::Placement draw_placement(const Options& options, Rng& rng) {
  for (uint32_t p = 0; p < shunt::kPlacements; ++p) {
    const auto placement = static_cast<shunt::Placement>(p);
    if (options.placement == name_of(placement)) return placement;
  }
  return rng.one_of({shunt::Placement::kPush, shunt::Placement::kPull});
}

size_t draw_cap(const Options& options, Rng& rng) {
  if (options.cap != 0) return options.cap;
  return rng.one_of<uint32_t>({8, 64, 520, 768, 1024, 2048, 2056, 2560, 5120});
}

std::vector<uint32_t> owners(uint32_t ranks, uint32_t streams_per_rank) {
  std::vector<uint32_t> owner;
  for (uint32_t s = 0; s < ranks * streams_per_rank; ++s) owner.push_back(s / streams_per_rank);
  return owner;
}

bool wanted(const Options& options, shunt::DataType type) {
  return options.types == "all" || options.types == name_of(protocol_of(type)) ||
         options.types == name_of(type);
}

}  // namespace

World::World(const Options& options, uint32_t ranks, uint32_t streams_per_rank, uint64_t seed)
    : options_(options),
      rng_(seed * 64 + ranks),
      slabs_(ranks, draw_cap(options, rng_), draw_limits(options, rng_),
             draw_placement(options, rng_)),
      streams_per_rank_(streams_per_rank),
      streams_(ranks * streams_per_rank),
      position_(streams_.size(), 0),
      stopped_before_(streams_.size(), false),
      launches_(ranks, 0),
      ordered_(ranks, HostOrder::kRun) {
  first_counters.assign(slabs_.geometry().lanes, shunt::kFirstCounter);
  for (uint32_t t = 0; t < shunt::kDataTypes; ++t) {
    const auto type = static_cast<shunt::DataType>(t);
    // The negative controls are built with few kernels.
    const auto is_built = [&](shunt::Variant variant) {
      const std::string name = kernel_name(type, protocol_of(type), variant, shunt::peer_batch_for(ranks));
      return shunt::host::find_kernel(name.c_str()) != nullptr;
    };
    if (!wanted(options, type) || !is_built(shunt::Variant::kAny)) continue;
    types_.push_back(type);
    if (is_built(shunt::Variant::kGrouped)) grouped_types_.push_back(type);
  }
  machine_ = std::make_unique<Machine>(slabs_.memory_bytes(), owners(ranks, streams_per_rank),
                                       rng_.next(), *this);
  slabs_.attach(machine_->memory().base());
}

// ---- plans
// ---------------------------------------------------------------------------------------------

Call World::draw_call() {
  const shunt::DataType type = types_[rng_.below(types_.size())];
  const uint64_t most = slabs_.cap() / size_of(type);
  const uint64_t lane =
      uint64_t{slabs_.limits().max_threads} * elements_per_packet(protocol_of(type), type);
  uint64_t count;
  switch (rng_.below(6)) {
    case 0:
      count = 1 + rng_.below(8);
      break;
    case 1:
      count = most;
      break;
    case 2:
      count = lane * (1 + rng_.below(4)) + rng_.below(3) - 1;
      break;  // about whole lanes
    case 3:
      count = 1 + (most >> rng_.below(8));
      break;
    default:
      count = 1 + rng_.below(most);
      break;
  }
  return draw_call(type, std::clamp<uint64_t>(count, 1, most));
}

Call World::draw_call(shunt::DataType type, uint64_t count) {
  const auto op = static_cast<shunt::ReduceOp>(rng_.of256(128) ? 0 : rng_.below(shunt::kReduceOps));
  return {type, op, count, static_cast<uint32_t>(recorded_.size() + 1)};
}

Calls World::draw_calls() {
  if (grouped_types_.empty() || rng_.of256(170)) return {draw_call()};
  const shunt::DataType type = grouped_types_[rng_.below(grouped_types_.size())];
  const size_t most = rng_.of256(16) ? shunt::kMaxMessages : 2 + rng_.below(5);
  uint32_t left = shunt::packets_for(protocol_of(type), slabs_.cap());
  Calls calls;
  while (calls.size() < most && left != 0) {
    const uint32_t packets = 1 + rng_.below(rng_.of256(128) ? left : std::min(left, 3u));
    const uint32_t each = shunt::elements_per_packet(protocol_of(type), type);
    const uint64_t count = uint64_t{packets} * each - rng_.below(each);
    if (calls.empty()) {
      calls.push_back(draw_call(type, count));
    } else {
      calls.push_back({type, calls.front().op, count, calls.front().number});
    }
    left -= calls.back().packets();
  }
  return calls;
}

uint32_t World::record(const Calls& calls) {
  Recorded recorded{calls, rng_.of256(100), {}, {}, slabs_.plan(calls), {}};
  const Call& first = calls.front();
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    const uint32_t shifts = options_.aligned ? 1 : 16 / size_of(first.type);
    const bool whole = rng_.of256(100);
    std::vector<Buffers>& buffers = recorded.buffers.emplace_back();
    for (const Call& call : calls) {
      buffers.emplace_back(call, whole ? 0 : rng_.below(shifts), whole ? 0 : rng_.below(shifts), rng_.of256(100));
    }
    std::vector<MessageAt> where;
    for (const Buffers& buffer : buffers) where.push_back({buffer.send(), buffer.recv()});
    recorded.params.push_back(slabs_.params(calls, rank, where));
    recorded.params.back().timeout_ns = timeout_ns_;
    const shunt::Variant variant =
        calls.size() > 1
            ? shunt::Variant::kGrouped
            : variant_of(recorded.plan, first.op, where[0].send, where[0].recv, first.bytes());
    const std::string name = kernel_name(first.type, recorded.plan.protocol, variant,
                                         shunt::peer_batch_for(ranks()));
    recorded.kernels.push_back(shunt::host::find_kernel(name.c_str()));
  }
  recorded_.push_back(std::move(recorded));
  return static_cast<uint32_t>(recorded_.size() - 1);
}

uint32_t World::add_step(uint32_t recorded) {
  steps_.push_back({recorded, rng_.next(), {}, {}, ranks()});
  return static_cast<uint32_t>(steps_.size() - 1);
}

// ---- streams
// -------------------------------------------------------------------------------------------

Outcome World::run() {
  slabs_.fill(first_counters);
  machine_->run();
  Outcome outcome{machine_->failure(), machine_->text(), ended_calls_, machine_->turn()};
  if (outcome.failure == Failure::kNone) {
    check_reports();
    outcome.failure = machine_->failure();
    outcome.text = machine_->text();
  }
  return outcome;
}

void World::make_data(Step& step) {
  if (!step.inputs.empty()) return;
  const Recorded& recorded = recorded_[step.recorded];
  Rng data(step.data_seed);
  for (const Call& call : recorded.calls) {
    std::vector<Bytes>& inputs = step.inputs.emplace_back();
    for (uint32_t rank = 0; rank < ranks(); ++rank) {
      inputs.push_back(make_input(call.type, call.count, recorded.odd, data));
    }
    step.expected.push_back(reduce(call.type, call.op, call.count, inputs));
  }
}

bool World::next(uint32_t stream, Launch& launch) {
  std::vector<Action>& actions = streams_[stream];
  size_t& position = position_[stream];
  const uint32_t rank = stream / streams_per_rank_;
  while (position < actions.size() && actions[position].kind == Action::Kind::kJump) {
    jump(rank, actions[position++].value);
  }
  if (position == actions.size()) return false;
  Step& step = steps_[actions[position].value];
  Recorded& recorded = recorded_[step.recorded];
  make_data(step);
  for (size_t i = 0; i < recorded.calls.size(); ++i) recorded.buffers[rank][i].prepare(step.inputs[i][rank]);
  stopped_before_[stream] = slabs_.stop(rank) != static_cast<uint32_t>(Stop::kNone);
  launch = {recorded.kernels[rank]->body, &recorded.params[rank], recorded.plan.lanes,
            block_threads(recorded.params[rank]),
            !stopped_before_[stream]};
  if (launches_[rank]++ == disturbance.at_step && rank == disturbance.victim) begin_disturbance();
  return true;
}

void World::jump(uint32_t rank, uint32_t target) {
  for (uint32_t l = 0; l < slabs_.geometry().lanes; ++l) {
    uint32_t& counter = slabs_.lane(rank, l).counter;
    const uint32_t parts = slabs_.geometry().parts;
    uint32_t to = target;
    while (shunt::part_of(to, parts) != shunt::part_of(counter, parts)) ++to;
    counter = to;
  }
}

void World::ended(uint32_t stream) {
  const uint32_t rank = stream / streams_per_rank_;
  Step& step = steps_[streams_[stream][position_[stream]++].value];
  const Recorded& recorded = recorded_[step.recorded];
  const bool stopped = slabs_.stop(rank) != static_cast<uint32_t>(Stop::kNone);
  const Demand demand = stopped_before_[stream] ? Demand::kUntouched
                        : stopped               ? Demand::kRightOrUntouched
                                                : Demand::kAll;
  ++ended_calls_;
  for (size_t i = 0; i < recorded.calls.size(); ++i) {
    const std::string wrong = recorded.buffers[rank][i].check(step.inputs[i][rank], step.expected[i], demand);
    if (wrong.empty()) continue;
    const Call& call = recorded.calls[i];
    machine_->fail(Failure::kWrongSum,
                   "rank " + std::to_string(rank) + ", step " +
                       std::to_string(&step - steps_.data()) + ", call " +
                       std::to_string(call.number) + ", message " + std::to_string(i) + " of " +
                       std::to_string(recorded.calls.size()) + " (" + std::to_string(call.count) + " " +
                       name_of(call.type) + " " + name_of(call.op) + ", lanes " +
                       std::to_string(recorded.plan.lanes) + "): " + wrong +
                       (stopped ? "; the rank had stopped" : "") + "\n" + machine_->dump());
    return;
  }
  if (--step.users == 0) {
    step.inputs.clear();
    step.expected.clear();
  }
}

}  // namespace sim
