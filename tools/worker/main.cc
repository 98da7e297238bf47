// nccl-shunt-bench-worker: started by `nccl-shunt bench`, for one rank or for all of them. It is a
// program of its own because it links to CUDA's driver and NCCL, which `nccl-shunt run` must do
// without.
//
// Usage: nccl-shunt-bench-worker RANK...   (descriptors: see tools/bench/channel.h)
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "tools/bench/board.h"
#include "tools/bench/channel.h"
#include "tools/bench/text.h"
#include "tools/worker/case_runner.h"
#include "tools/worker/team.h"

namespace shunt::bench {
namespace {

void send_facts(Channel& channel, const Options& options, const std::vector<uint32_t>& ranks) {
  const DriverFacts driver = driver_facts();
  channel.send(Fields("facts")
                   .set("cuda_version", static_cast<uint64_t>(driver.cuda_version))
                   .set("driver_version", driver.driver_version)
                   .set("nccl_version", nccl_version_text())
                   .set("public", public_provider())
                   .set("real", real_provider()));
  for (const uint32_t rank : ranks) {
    channel.send(Fields("gpu")
                     .set("rank", uint64_t{rank})
                     .set("name", device_name(options.device_of(rank))));
  }
}

ncclUniqueId exchange_id(Channel& channel, const std::vector<uint32_t>& ranks) {
  if (ranks[0] == 0) {
    ncclUniqueId id;
    SHUNT_NCCL(ncclGetUniqueId(&id));
    channel.send(Fields("id").set("hex", to_hex(id)));
  }
  return unique_id_from(channel.receive().text("hex"));
}

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

// Says what went wrong and ends the process at once: other threads may wait for this one for ever.
[[noreturn]] void fail(Channel& channel, const char* what) {
  try {
    channel.send(Fields("error").set("text", what));
  } catch (const std::exception&) {  // the launcher is gone: nobody to tell
  }
  std::_Exit(EXIT_FAILURE);
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
  using namespace shunt::bench;
  if (argc < 2) {
    std::fprintf(stderr, "nccl-shunt-bench-worker: started by `nccl-shunt bench`, not by hand\n");
    return EXIT_FAILURE;
  }
  std::vector<uint32_t> ranks;
  Channel channel{FileDescriptor(kChannelFd)};
  try {
    for (int i = 1; i < argc; ++i) ranks.push_back(static_cast<uint32_t>(parse_number(argv[i])));
    Board board = Board::open(kBoardFd);
    run_worker(channel, board, ranks);
    channel.send(Fields("done"));
  } catch (const std::exception& error) {
    fail(channel, error.what());
  }
  return EXIT_SUCCESS;
}
