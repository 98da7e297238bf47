// Everything that a benchmark found, for programs.
#pragma once

#include <string>

#include "tools/bench/results.h"

namespace shunt::bench {

struct RunInfo {
  std::string commit;                    // of nccl-shunt
  std::string date;                      // ISO 8601, UTC
  std::vector<std::string> environment;  // NAME=value of NCCL_*, SHUNT_* and CUDA_* settings
  std::vector<std::string> failures;     // all that make the exit status non-zero
};

std::string utc_now();
// Of this process, sorted.
std::vector<std::string> relevant_environment();

std::string to_json(const Results& results, const Options& options, const RunInfo& info);
// Throws std::system_error.
void write_file(const std::string& path, const std::string& text);

}  // namespace shunt::bench
