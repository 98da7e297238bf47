// Checks and times one case, by NCCL and by the library under test, and sends the figures to the
// launcher.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/inputs.h"
#include "tools/bench/reference.h"
#include "tools/worker/buffers.h"
#include "tools/worker/team.h"

namespace shunt::bench {

// What one rank found for one path.
struct Finding {
  ncclResult_t code = ncclSuccess;  // anything else: the call was refused, and nothing was measured
  uint64_t hash = 0;                // of all outputs in order
  uint64_t checked = 0;             // outputs compared with the reference
  uint64_t wrong = 0;               // wrong elements of all outputs
  std::string problem;              // the first wrong element or fault; empty if none
  double worst = 0;
  double squared_rms = 0;         // sum over outputs
  std::vector<double> device_us;  // a call in the graph, each replay
  std::vector<double> host_us;    // the calling thread's time, each eager call
  std::vector<double> wall_us;    // a call from enqueue to done, each eager batch
};

class CaseRunner {
 public:
  CaseRunner(Team& team, const Case& c, uint32_t index, const std::vector<Path>& paths);
  void run();

 private:
  using Graphs = std::vector<GraphExec>;

  void check();
  void time();
  void time_eager(Path path);
  void time_graph(Path path, const Graphs& graphs);

  void load(uint32_t iteration);
  void prepare();
  ncclResult_t enqueue(Path path, uint32_t set) { return team_.all_reduce(path, calls_[set]); }
  Graphs capture(Path path, uint32_t calls);
  // Downloads the first `sets` outputs. `by_value`: compares the first with the reference and the
  // others with the first; else, after in-place calls that fed each other, only guards and hash
  // count.
  void verify(Path path, uint32_t sets, bool by_value);
  void judge(Finding& finding, Path path, std::span<const std::byte> output);

  Finding& finding(size_t member, Path path) {
    return findings_[member][static_cast<uint32_t>(path)];
  }
  bool refused(Path path) { return finding(0, path).code != ncclSuccess; }
  void set_code(Path path, ncclResult_t code);
  void phase(const char* what, Path path);
  void report();

  Team& team_;
  const Options& options_;
  const Case case_;
  const uint32_t index_;
  const std::vector<Path> paths_;
  std::vector<Call> calls_;  // by set; made once, for building one would be part of a call's time
  std::vector<Buffers> buffers_;                       // by member
  std::vector<std::array<Finding, kPaths>> findings_;  // by member
  std::vector<std::vector<std::byte>> inputs_;         // on the host, by member
  Inputs description_;                                 // of inputs_
  uint8_t poison_ = 0;
};

}  // namespace shunt::bench
