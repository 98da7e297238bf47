// One communicator made by worker processes with the library preloaded, its calls checked: what the
// library said of it (its own log lines), and whether results and counters agree with that. Neither
// CUDA nor NCCL in here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/results.h"
#include "tools/bench/shunt_log.h"

namespace shunt::trial {

struct Request {
  uint32_t ranks = 2;
  std::vector<uint32_t> devices;  // ordinal of each rank; empty: the rank
  std::string worker;             // path of nccl-shunt-bench-worker
  std::string ld_preload;
  // As bench::Job's; SHUNT_CAP=measure and SHUNT_LOG=debug are added.
  std::vector<std::string> environment;
  std::vector<bench::Size> sizes;  // calls that are checked, one of each
  uint32_t timeout_s = 120;
};

struct Outcome {
  bench::Prepared said;
  bench::Results results;
  // Why it does not work, one line each: of the job, of results, of counters that contradict the
  // cap.
  std::vector<std::string> failures;
  std::vector<std::string> other_lines;  // that workers printed: NCCL's, say
  uint64_t shunted = 0, forwarded = 0;   // by the library's counters
};

// All sizes that the library times, one above, and one of a few bytes: so whatever it measures, a
// call is just as large as the cap and another one larger.
std::vector<bench::Size> sizes_around_caps();

// Throws std::exception where nothing can be started.
Outcome run(const Request& request);

}  // namespace shunt::trial
