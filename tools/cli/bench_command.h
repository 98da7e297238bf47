// `nccl-shunt bench`: NCCL's all-reduce with and without the library, checked and timed.
#pragma once

#include <cstdint>
#include <string>

#include "tools/bench/options.h"

namespace shunt::cli {

struct BenchRequest {
  bench::Options options;
  bool preload = true;
  uint32_t timeout_s = 120;
  std::string json_file;  // empty: none
  std::string commit;
};

// Prints the report. Returns the exit status: 0, or 1 for any wrong result, count or failed worker.
// Throws std::exception for what kept it from running at all.
int bench(const BenchRequest& request);

}  // namespace shunt::cli
