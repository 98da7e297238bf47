#include "tools/trial/trial.h"

#include "shim/engine/timed_sizes.h"
#include "tools/bench/launcher.h"

namespace shunt::trial {
namespace {

using namespace bench;

Options options_of(const Request& request) {
  Options options;
  options.ranks = request.ranks;
  options.devices = request.devices;
  options.sizes = request.sizes;
  options.places = {Place::kOutOfPlace};
  options.modes = {Mode::kEager};
  options.iterations = 1;
  options.time = false;
  validate(options);
  return options;
}

void add_failures(Outcome& outcome, const Options& options) {
  for (const Row& row : outcome.results.rows) {
    for (const std::string& failure : row.failures(options)) {
      outcome.failures.push_back(describe(row.c) + ": " + failure);
    }
  }
  for (const Calls& calls : outcome.results.calls) {
    if (!calls.counters) continue;
    const auto count = [&](const char* name) {
      const auto found = calls.counters->find(name);
      return found == calls.counters->end() ? 0 : found->second;
    };
    outcome.shunted += count("shunted");
    outcome.forwarded += count("forwarded");
  }
  if (!outcome.said.on) {
    outcome.failures.push_back("the library said nothing of the communicator");
    return;
  }
  const uint64_t cap = *outcome.said.on ? outcome.said.cap : 0;
  for (const std::string& failure : count_failures(outcome.results.calls, cap)) {
    outcome.failures.push_back("with a cap of " + std::to_string(cap) + " bytes, " + failure);
  }
}

}  // namespace

std::vector<Size> sizes_around_caps() {
  std::vector<Size> sizes = {{8, false}};
  for (const uint64_t bytes : kTimedSizes) sizes.push_back({bytes, false});
  sizes.push_back({2 * sizes.back().value, false});
  return sizes;
}

Outcome run(const Request& request) {
  const Options options = options_of(request);
  Job job{options, request.worker, request.ld_preload, request.timeout_s, request.environment};
  for (const char* setting : {"SHUNT_CAP=measure", "SHUNT_LOG=debug"})
    job.environment.push_back(setting);
  Outcome outcome;
  Collector collector(options, request.ranks);
  const std::string failure = run_job(
      job, {[&](uint32_t worker, const Fields& message) { collector.message(worker, message); },
            [&](uint32_t worker, const std::string& line) {
              if (outcome.said.add(line) || collector.error_line(worker, line)) return;
              if (!line.starts_with("nccl-shunt[")) outcome.other_lines.push_back(line);
            },
            {}});
  outcome.results = collector.results();
  if (failure.empty()) {
    add_failures(outcome, options);
  } else {
    outcome.failures.push_back(failure);
  }
  return outcome;
}

}  // namespace shunt::trial
