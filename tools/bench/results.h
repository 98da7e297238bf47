// What a benchmark found: figures of all ranks, put together to one row a case.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/cases.h"
#include "tools/bench/fields.h"
#include "tools/bench/shunt_log.h"

namespace shunt::bench {

// One path ("nccl" or "shunt") of one case. Times are microseconds a call, each sample the slowest
// rank's.
struct PathSummary {
  uint64_t code = 0;  // ncclResult_t; anything but 0: the call was refused
  uint64_t checked = 0;
  uint64_t wrong = 0;
  std::vector<std::string> problems;  // of any rank
  bool ranks_agree = true;            // all outputs equal bit for bit
  double worst = 0;                   // largest error in units of its bound
  double rms = 0;                     // relative error
  std::vector<double> device_us;      // by replay of the graph
  std::vector<double> wall_us;        // eager, enqueue to done, by batch
  std::vector<double> host_us;        // eager, the calling thread: the median call of each rank
};

struct Row {
  Case c;
  std::optional<PathSummary> nccl;
  std::optional<PathSummary> shunt;  // absent where nothing stands in front of NCCL
  // Why the case fails; empty: it passes.
  std::vector<std::string> failures(const Options& options) const;
};

struct Facts {
  std::vector<std::string> gpus;  // names, by rank
  uint64_t cuda_version = 0;
  std::string driver_version;
  std::string nccl_version;
  std::string public_provider;  // the library that the workers' ncclAllReduce came from
  std::string real_provider;    // ... and their pncclAllReduce
  std::string real_file;        // the latter's path
  bool emulated() const;
  bool two_paths() const { return public_provider != real_provider; }
};

// What one worker process called, and what the library in it counted.
struct Calls {
  std::map<uint64_t, uint64_t> by_bytes;
  uint64_t refused = 0;
  std::optional<Counters> counters;
};

struct Results {
  Facts facts;
  std::vector<Row> rows;     // by case
  std::vector<Calls> calls;  // by worker
};

// Compares counters with calls: exactly those of 1 to `up_to` bytes must have been shunted. Returns
// what differs, one line a worker.
std::vector<std::string> count_failures(const std::vector<Calls>& calls, uint64_t up_to);

// Takes the messages of the workers in any order.
class Collector {
 public:
  Collector(const Options& options, uint32_t workers);

  // Called when a case is complete, in the order of the cases.
  std::function<void(const Row&)> on_row;
  // Called once, before the first row. May throw to stop the benchmark.
  std::function<void(const Facts&)> on_facts;

  // Throws std::runtime_error for a malformed message.
  void message(uint32_t worker, const Fields& message);
  // A line of a worker's stderr. False: it holds no counters, and is for the user.
  bool error_line(uint32_t worker, const std::string& line);
  Results& results() { return results_; }

 private:
  struct Partial {  // of one case and path
    uint32_t ranks = 0;
    PathSummary summary;
    std::vector<std::vector<double>> device_us, wall_us;  // by rank
    double squared_rms = 0;
    std::optional<uint64_t> hash;
  };

  void add_facts(const Fields& message);
  void add_gpu(const Fields& message);
  void add_result(const Fields& message);
  void add_calls(Calls& calls, const Fields& message);
  void emit_rows();

  const Options options_;
  Results results_;
  std::vector<std::array<Partial, 2>> partial_;  // by case; nccl, shunt
  size_t next_row_ = 0;
  uint32_t gpus_ = 0;
};

}  // namespace shunt::bench
