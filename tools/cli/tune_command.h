// `nccl-shunt tune`: measures NCCL's algorithms, protocols and channels and writes a profile that
// libnccl-tuner-shunt.so follows.
#pragma once

#include <string>

#include "tools/tune/run.h"

namespace shunt::cli {

struct TuneRequest {
  tune::Plan plan;
  std::vector<uint32_t> devices;  // ordinal of each rank; empty: the rank
  std::string unsafe_words;       // plan.unsafe goes with them
  std::string output;             // empty: the cache's file
  std::string commit;
};

// Returns the exit status. Throws std::exception with a message for the user.
int tune_machine(const TuneRequest& request);

// `nccl-shunt tune --show FILE`
int show_profile(const std::string& path);
// `nccl-shunt tune --diff A B`: 0 if they say the same, 1 if not.
int diff_profiles(const std::string& a, const std::string& b);

}  // namespace shunt::cli
