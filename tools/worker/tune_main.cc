// nccl-shunt-tune-worker: started by `nccl-shunt tune` for one rank. It is also the tuner plugin
// that NCCL finds in it (steering.h), so one process can try any number of configurations: making a
// communicator for each would take seconds.
//
// Usage: nccl-shunt-tune-worker RANK   (descriptors: see tools/bench/channel.h)
#include <cstdlib>
#include <stdexcept>

#include "plugin/machine.h"
#include "plugin/profile_json.h"
#include "tools/bench/text.h"
#include "tools/tune/messages.h"
#include "tools/worker/graph_timer.h"
#include "tools/worker/startup.h"
#include "tools/worker/steering.h"
#include "tools/worker/tune_data.h"

namespace shunt::tune {
namespace {

using bench::Board;
using bench::Channel;
using bench::Fields;
using bench::GraphExec;
using bench::Options;
using bench::Team;

ncclResult_t enqueue(const Try& t, const Shape& shape, const TuneData& data,
                     bench::Member& member) {
  const auto stream = reinterpret_cast<cudaStream_t>(member.stream.get());
  ncclComm_t comm = member.comm.get();
  switch (t.collective) {
    case Collective::kAllReduce:
      return pncclAllReduce(data.send(), data.receive(), shape.count, ncclBfloat16, ncclSum, comm,
                            stream);
    case Collective::kAllGather:
      return pncclAllGather(data.send(), data.receive(), shape.count, ncclBfloat16, comm, stream);
    case Collective::kReduceScatter:
      return pncclReduceScatter(data.send(), data.receive(), shape.count, ncclBfloat16, ncclSum,
                                comm, stream);
  }
  return ncclInvalidArgument;
}

class Tuner {
 public:
  Tuner(Team& team, uint32_t ranks, uint64_t most_bytes)
      : team_(team), ranks_(ranks), data_(most_bytes, ranks, team.member(0).rank) {}

  Tried run(const Try& t) {
    const Shape shape = shape_of(t.collective, t.bytes, ranks_);
    if (shape.count == 0 || t.calls == 0 || t.replays == 0)
      throw std::runtime_error("malformed try");
    team_.phase(std::string(name_of(t.collective)) + " " + std::to_string(t.bytes) + " as " +
                to_text(t.wish));
    Tried tried;
    tried.rank = team_.member(0).rank;
    const std::vector<GraphExec> graphs = capture(t, shape, tried);
    // All ranks or none: a rank that alone goes on waits for the others on its GPU.
    team_.agree(static_cast<ncclResult_t>(tried.status));
    if (tried.status != Status::kMeasured) return tried;
    CUstream stream = team_.member(0).stream.get();
    data_.poison(stream, shape);
    const auto nothing = [] {};
    tried.us = replay_times(team_, graphs, {t.warmups, t.replays, t.calls}, nothing)[0];
    tried.problem = data_.check(stream, t.collective, shape);
    team_.barrier();  // a graph's end may free what a peer still maps
    return tried;
  }

 private:
  // Steers only the calls that are captured: the small ones of Team::meet are NCCL's.
  std::vector<GraphExec> capture(const Try& t, const Shape& shape, Tried& tried) {
    steer(t.wish, t.unsafe);
    ncclResult_t code = ncclSuccess;
    std::vector<GraphExec> graphs = team_.capture(
        [&] {
          for (uint32_t call = 0; call < t.calls; ++call) {
            const ncclResult_t result = enqueue(t, shape, data_, team_.member(0));
            if (result != ncclSuccess) return result;
          }
          return ncclSuccess;
        },
        code);
    const Asked asked = steer({}, false);
    if (t.wish.empty()) SHUNT_NCCL(code);
    tried.cheapest = asked.cheapest;
    tried.allowed = asked.allowed;
    // What NCCL offers and then refuses, it refuses on all ranks: no reason to end the run.
    if (asked.ruled_out > 0 || code != ncclSuccess) tried.status = Status::kRuledOut;
    if (asked.times == 0) tried.status = Status::kUnasked;
    return graphs;
  }

  Team& team_;
  uint32_t ranks_;
  TuneData data_;
};

// As the plugin will see them; after NCCL has put its configuration files into the environment.
void send_machine(Channel& channel, uint32_t ranks) {
  tuner::Profile profile;
  try {
    profile.machine = tuner::machine_facts();
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("the machine cannot be told: ") + error.what());
  }
  profile.machine.ranks = ranks;
  profile.machine.nccl = bench::nccl_version_text();
  profile.machine.settings =
      tuner::settings_of([](const char* name) -> const char* { return std::getenv(name); });
  channel.send(Fields("machine").set("profile", tuner::to_json(profile)));
}

void run_worker(Channel& channel, Board& board, const std::vector<uint32_t>& ranks) {
  if (ranks.size() != 1) throw std::runtime_error("one rank a worker");
  board.set_phase(ranks[0], "start the driver");
  const Options options = bench::options_from(channel.receive());
  SHUNT_DRIVER(cuInit(0));
  bench::send_facts(channel, options, ranks);
  const ncclUniqueId id = bench::exchange_id(channel, ranks);
  Team team(options, board, channel, ranks);
  team.connect(id);
  Tuner tuner(team, options.ranks, options.sizes.at(0).value);
  send_machine(channel, options.ranks);
  for (Fields message = channel.receive(); message.kind() != "stop"; message = channel.receive()) {
    channel.send(to_fields(tuner.run(try_from(message))));
    team.phase("wait for the next try");
  }
  team.finish();
}

}  // namespace
}  // namespace shunt::tune

int main(int argc, char** argv) {
  return shunt::bench::worker_main(argc, argv, shunt::tune::run_worker);
}
