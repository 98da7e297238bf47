// Starts the workers of one benchmark, passes their messages on, and ends them all when one fails
// or time is up. Nothing of it survives: workers die with the launcher, and all they share has no
// name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/bench/fields.h"
#include "tools/bench/options.h"

namespace shunt::bench {

struct Job {
  Options options;
  std::string worker;      // path of nccl-shunt-bench-worker
  std::string ld_preload;  // LD_PRELOAD of the workers; empty: that of this process
  uint32_t timeout_s = 120;
  // NAME=value, in place of what this process has; "NAME" alone: not there.
  std::vector<std::string> environment;
};

// Sends a message to every worker, from any thread. A worker that is gone is passed over, and so
// are all once run_job has returned.
using Tell = std::function<void(const Fields&)>;

// Ranks of each worker process.
std::vector<std::vector<uint32_t>> ranks_by_worker(const Options& options);

struct Listener {
  // A message that is not the launcher's own. May throw: the job is ended, with that text as the
  // failure.
  std::function<void(uint32_t worker, const Fields&)> on_message;
  // A line that a worker wrote to stdout (NCCL_DEBUG does) or stderr.
  std::function<void(uint32_t worker, const std::string&)> on_error_line;
  // Once all workers have been started; may be empty.
  std::function<void(Tell)> on_start;
};

// Returns what went wrong, with rank and phase; empty: all workers finished. Throws
// std::system_error when no process can be started.
std::string run_job(const Job& job, const Listener& listener);

}  // namespace shunt::bench
