// nccl-shunt-bench-worker: started by `nccl-shunt bench`, for one rank or for all of them. It is a
// program of its own because it links to CUDA's driver and NCCL, which `nccl-shunt run` must do
// without.
//
// Usage: nccl-shunt-bench-worker RANK...   (descriptors: see tools/bench/channel.h)
#include <exception>
#include <thread>
#include <vector>

#include "tools/bench/board.h"
#include "tools/bench/channel.h"
#include "tools/worker/case_runner.h"
#include "tools/worker/startup.h"
#include "tools/worker/team.h"

namespace shunt::bench {
namespace {

void run_team(const Options& options, Board& board, Channel& channel, const ncclUniqueId& id,
              const std::vector<uint32_t>& ranks) {
  Team team(options, board, channel, ranks);
  team.connect(id);
  // One path only where nothing stands in front of NCCL.
  std::vector<Path> paths = {Path::kNccl};
  if (public_provider() != real_provider()) paths.push_back(Path::kShunt);
  const std::vector<Case> cases = make_cases(options);
  for (uint32_t i = 0; i < cases.size(); ++i) CaseRunner(team, cases[i], i, paths).run();
  team.finish();
}

void run_worker(Channel& channel, Board& board, const std::vector<uint32_t>& ranks) {
  for (const uint32_t rank : ranks) board.set_phase(rank, "start the driver");
  const Options options = options_from(channel.receive());
  SHUNT_DRIVER(cuInit(0));
  send_facts(channel, options, ranks);
  const ncclUniqueId id = exchange_id(channel, ranks);

  if (options.launch != Launch::kThreads) {
    run_team(options, board, channel, id, ranks);
    return;
  }
  std::vector<std::thread> threads;
  for (const uint32_t rank : ranks) {
    threads.emplace_back([&, rank] {
      try {
        run_team(options, board, channel, id, {rank});
      } catch (const std::exception& error) {
        fail(channel, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace shunt::bench

int main(int argc, char** argv) {
  return shunt::bench::worker_main(argc, argv, shunt::bench::run_worker);
}
