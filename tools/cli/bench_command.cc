#include "tools/cli/bench_command.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <vector>

#include "tools/bench/json_report.h"
#include "tools/bench/launcher.h"
#include "tools/bench/results.h"
#include "tools/bench/table.h"
#include "tools/cli/preload.h"

namespace shunt::cli {
namespace {

using namespace bench;

// Prints rows as they come, a table for each mode.
class Printer {
 public:
  explicit Printer(const Options& options) : options_(options) {}

  void facts(const Facts& facts) {
    two_paths_ = facts.two_paths();
    std::printf("%s\n", facts_text(facts, options_).c_str());
    std::fflush(stdout);
  }

  void row(const Row& row) {
    if (mode_ != row.c.mode) {
      mode_ = row.c.mode;
      columns_ = columns_for(row.c.mode, two_paths_, options_);
      std::printf("\n%s\n%s\n", heading(row.c.mode).c_str(), title_line(columns_).c_str());
    }
    std::printf("%s\n", row_line(columns_, row).c_str());
    for (const std::string& failure : row.failures(options_)) {
      std::printf("    %s\n", failure.c_str());
    }
    std::fflush(stdout);
  }

 private:
  std::string heading(Mode mode) const {
    if (!options_.time) return mode == Mode::kEager ? "eager calls" : "calls replayed from a graph";
    if (mode == Mode::kEager) {
      return "eager calls: time of the calling thread (host) and end to end (done), a call";
    }
    return "device time of a call in a graph of " + std::to_string(options_.graph_calls) +
           " calls, median of " + std::to_string(options_.replays * (options_.alternate ? 2 : 1)) +
           " replays, slowest rank";
  }

  const Options& options_;
  bool two_paths_ = false;
  std::optional<Mode> mode_;
  std::vector<Column> columns_;
};

void print_counters(const std::vector<Calls>& workers) {
  uint64_t made = 0;
  Counters sum;
  for (const Calls& calls : workers) {
    for (const auto& [bytes, count] : calls.by_bytes) made += count;
    made += calls.refused;
    if (!calls.counters) continue;
    for (const auto& [key, value] : *calls.counters) sum[key] += value;
  }
  std::printf("\ncalls through the library: %llu made", static_cast<unsigned long long>(made));
  for (const auto& [key, value] : sum) {
    std::printf(", %s %llu", key.c_str(), static_cast<unsigned long long>(value));
  }
  std::printf("%s\n", sum.empty() ? "; it printed no counters" : "");
}

std::vector<std::string> failures_of(const Results& results, const Options& options,
                                     const std::string& job_failure) {
  std::vector<std::string> failures;
  if (!job_failure.empty()) failures.push_back(job_failure);
  for (const Row& row : results.rows) {
    for (const std::string& failure : row.failures(options)) {
      failures.push_back(describe(row.c) + ": " + failure);
    }
  }
  // Counters of a job that was ended mean nothing.
  if (job_failure.empty() && options.expect_shunted_up_to) {
    for (std::string& failure : count_failures(results.calls, *options.expect_shunted_up_to)) {
      failures.push_back(std::move(failure));
    }
  }
  return failures;
}

}  // namespace

int bench(const BenchRequest& request) {
  validate(request.options);
  const std::string library = request.preload ? find_library() : "";
  const Job job{request.options, find_worker(),
                request.preload ? prepended(library, std::getenv("LD_PRELOAD")) : "",
                request.timeout_s};
  Collector collector(request.options,
                      static_cast<uint32_t>(ranks_by_worker(request.options).size()));
  Printer printer(request.options);
  collector.on_row = [&](const Row& row) { printer.row(row); };
  collector.on_facts = [&](const Facts& facts) {
    // The dynamic linker only warns about a library that it cannot preload.
    if (request.preload && !facts.public_provider.starts_with("libnccl-shunt")) {
      throw std::runtime_error(library +
                               " was not loaded into the workers: their ncclAllReduce is of " +
                               facts.public_provider);
    }
    printer.facts(facts);
  };
  const std::string job_failure = run_job(
      job, {[&](uint32_t worker, const Fields& message) { collector.message(worker, message); },
            [&](uint32_t worker, const std::string& line) {
              if (collector.error_line(worker, line)) return;
              std::fprintf(stderr, "[worker %u] %s\n", worker, line.c_str());
            }});

  const Results& results = collector.results();
  if (results.facts.two_paths()) print_counters(results.calls);
  const std::vector<std::string> failures = failures_of(results, request.options, job_failure);
  if (!request.json_file.empty()) {
    write_file(request.json_file,
               to_json(results, request.options,
                       {request.commit, utc_now(), relevant_environment(), failures}));
  }
  for (const std::string& failure : failures) {
    std::fprintf(stderr, "nccl-shunt bench: %s\n", failure.c_str());
  }
  return failures.empty() ? 0 : 1;
}

}  // namespace shunt::cli
