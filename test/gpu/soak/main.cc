// The soak: all-reduces by the million through the preloaded library on real GPUs (or emulated
// ones), every output compared, memory watched. Starts one process a rank, which is this program
// again; see worker.h.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test/gpu/soak/worker.h"
#include "tools/bench/launcher.h"
#include "tools/bench/shunt_log.h"
#include "tools/worker/startup.h"

namespace shunt::soak {
namespace {

using bench::Fields;
using Json = nlohmann::json;

// Growth from the state after some communicators have come and gone to the end that counts as flat.
// NCCL's own is part of it.
struct Bounds {
  uint64_t device_mib = 16, host_mib = 64, descriptors = 8;
};

struct Request {
  Settings settings;
  Bounds bounds;
  std::string preload, json_file;
  uint32_t timeout_s = 600;
};

struct Outcome {
  std::vector<std::string> failures;
  std::map<uint64_t, Fields> results;              // by rank
  std::map<uint64_t, std::vector<Fields>> memory;  // by rank
  std::vector<bench::Counters> counters;           // that the library printed
  uint64_t slow_probes =
      0;  // communicators that forward because the machine was too busy for the probe
};

unsigned long long printable(uint64_t number) { return number; }

std::string line_of(const Fields& f) {
  char text[300];
  const double seconds = std::max(f.real("seconds"), 1e-3);
  std::snprintf(text, sizeof text,
                "%.0f s: %llu calls (%.0f a second): %llu in graphs, %llu eager, %llu grouped; "
                "%llu up to the cap, "
                "%llu others; %llu graphs, %llu communicators; %llu wrong",
                seconds, printable(f.number("calls")),
                static_cast<double>(f.number("calls")) / seconds, printable(f.number("replayed")),
                printable(f.number("eager")), printable(f.number("grouped")),
                printable(f.number("up_to_cap")), printable(f.number("above_cap")),
                printable(f.number("graphs")), printable(f.number("communicators")),
                printable(f.number("wrong")));
  return text;
}

void take_message(Outcome& outcome, const Fields& message) {
  if (message.kind() == "progress") {
    std::printf("%s\n", line_of(message).c_str());
    std::fflush(stdout);
  } else if (message.kind() == "wrong") {
    outcome.failures.push_back("rank " + message.text("rank") + ", " + message.text("text"));
    std::printf("WRONG %s\n", outcome.failures.back().c_str());
  } else if (message.kind() == "memory") {
    outcome.memory[message.number("rank")].push_back(message);
  } else if (message.kind() == "result") {
    outcome.results.emplace(message.number("rank"), message);
  } else {
    throw std::runtime_error("unknown message " + message.kind());
  }
}

void take_line(Outcome& outcome, uint32_t worker, const std::string& line) {
  if (auto counters = bench::parse_stats(line)) outcome.counters.push_back(std::move(*counters));
  if (line.find("the probe's kernels do not end") != std::string::npos) {
    ++outcome.slow_probes;
  } else if (line.find("] warning") != std::string::npos ||
             line.find("] error") != std::string::npos) {
    outcome.failures.push_back("rank " + std::to_string(worker) + " said: " + line);
  }
  std::printf("[rank %u] %s\n", worker, line.c_str());
}

void judge_memory(Outcome& outcome, const Bounds& bounds) {
  for (const auto& [rank, samples] : outcome.memory) {
    if (samples.size() < 4) {
      outcome.failures.push_back("only " + std::to_string(samples.size()) +
                                 " looks at the memory of rank " + std::to_string(rank) +
                                 ": make communicators anew more often");
      continue;
    }
    const Fields &before = samples[samples.size() / 4 + 1], &after = samples.back();
    const auto grown = [&](const char* what, uint64_t bound) {
      const uint64_t from = before.number(what), to = after.number(what);
      std::printf("rank %llu: %s %llu, %llu, at the end %llu\n", printable(rank), what,
                  printable(samples.front().number(what)), printable(from), printable(to));
      if (to <= from + bound) return;
      outcome.failures.push_back("rank " + std::to_string(rank) + ": " + what + " went from " +
                                 std::to_string(from) + " to " + std::to_string(to));
    };
    grown("device", bounds.device_mib << 20);
    grown("host", bounds.host_mib << 20);
    grown("descriptors", bounds.descriptors);
  }
}

// What the library counted must be what was asked for.
void judge_paths(Outcome& outcome, const Request& request) {
  if (request.preload.empty()) return;
  uint64_t shunted = 0, forwarded = 0, up_to_cap = 0, above_cap = 0;
  for (bench::Counters& counters : outcome.counters) {
    shunted += counters["shunted"];
    forwarded += counters["forwarded"];
  }
  for (const auto& [rank, result] : outcome.results) {
    up_to_cap += result.number("asked_up_to_cap");
    above_cap += result.number("asked_above_cap");
  }
  if (outcome.slow_probes == 0 && (shunted != up_to_cap || forwarded != above_cap)) {
    outcome.failures.push_back("the library counted " + std::to_string(shunted) + " shunted and " +
                               std::to_string(forwarded) + " forwarded calls, asked for were " +
                               std::to_string(up_to_cap) + " up to the cap and " +
                               std::to_string(above_cap) + " others");
  }
}

uint64_t wrong_of(const Outcome& outcome) {
  uint64_t wrong = 0;
  for (const auto& [rank, result] : outcome.results) wrong += result.number("wrong");
  return wrong;
}

void judge(Outcome& outcome, const Request& request) {
  if (const uint64_t wrong = wrong_of(outcome); wrong != 0) {
    outcome.failures.push_back(std::to_string(wrong) + " wrong outputs");
  }
  if (outcome.results.size() != request.settings.ranks)
    outcome.failures.push_back("not all ranks said what they did");
  judge_memory(outcome, request.bounds);
  judge_paths(outcome, request);
}

Json to_json(const Fields& fields) {
  Json json;
  for (const auto& [key, value] : fields.all())
    json[key] = key == "seconds" ? Json(fields.real(key)) : Json(fields.number(key));
  return json;
}

void write_json(const Outcome& outcome, const std::string& file) {
  Json json{{"failures", outcome.failures}, {"slow_probes", outcome.slow_probes}};
  json["ranks"] = Json::array();
  for (const auto& [rank, result] : outcome.results) {
    Json entry = to_json(result);
    for (const Fields& sample : outcome.memory.at(rank)) entry["memory"].push_back(to_json(sample));
    json["ranks"].push_back(std::move(entry));
  }
  std::ofstream out(file);
  if (!(out << json.dump(1) << '\n')) throw std::runtime_error("cannot write " + file);
}

int launch(const Request& request, const char* program) {
  bench::Options options;
  options.ranks = request.settings.ranks;
  options.sizes = bench::parse_sizes("4K");  // not used, but the launcher's options have some
  bench::Job job{options, program, request.preload, request.timeout_s, {}};
  job.environment = {"SHUNT_ENABLE=on", "SHUNT_STATS=1",
                     "SHUNT_CAP=" + std::to_string(request.settings.cap)};
  Outcome outcome;
  const std::string failure = bench::run_job(
      job, {[&](uint32_t, const Fields& message) { take_message(outcome, message); },
            [&](uint32_t worker, const std::string& line) { take_line(outcome, worker, line); },
            [&](const bench::Tell& tell) { tell(to_fields(request.settings)); }});
  if (failure.empty()) {
    judge(outcome, request);
  } else {
    outcome.failures.push_back(failure);
  }
  if (!request.json_file.empty()) write_json(outcome, request.json_file);
  for (const std::string& text : outcome.failures) std::printf("FAIL %s\n", text.c_str());
  if (!outcome.results.empty()) {
    Fields last =
        outcome.results.begin()->second;  // the ranks' counts are the same, but for what went wrong
    last.set("wrong", wrong_of(outcome));
    std::printf("soak: %s\n", line_of(last).c_str());
  }
  return outcome.failures.empty() ? 0 : 1;
}

// An error ends the process before destructors run: they would free memory that a waiting kernel
// uses.
void work(bench::Channel& channel, bench::Board& board, const std::vector<uint32_t>& ranks) {
  const bench::Options options = bench::options_from(channel.receive());
  const Settings settings = settings_from(channel.receive());
  Worker worker(settings, board, channel, ranks.at(0), options.device_of(ranks.at(0)));
  try {
    worker.run();
  } catch (const std::exception& error) {
    bench::fail(channel, error.what());
  }
}

int soak(int argc, char** argv) {
  Request request;
  Settings& settings = request.settings;
  CLI::App app("Random all-reduces by the million, every output compared");
  app.add_option("--preload", request.preload, "the library; without it NCCL runs alone");
  app.add_option("--ranks", settings.ranks)->check(CLI::Range(2, 16));
  app.add_option("--calls", settings.calls, "calls of each rank; 0: no end");
  app.add_option("--seconds", settings.seconds, "ends before --calls; 0: no end");
  app.add_option("--cap", settings.cap, "SHUNT_CAP in bytes")->check(CLI::Range(1024, 1 << 20));
  app.add_option("--graph-calls", settings.graph_calls)->check(CLI::Range(1, 5000));
  app.add_option("--eager-calls", settings.eager_calls)->check(CLI::Range(1, 5000));
  app.add_option("--communicator-calls", settings.communicator_calls,
                 "then communicators are made anew");
  app.add_option("--seed", settings.seed);
  app.add_option("--device-mib", request.bounds.device_mib,
                 "growth of device memory that counts as flat");
  app.add_option("--host-mib", request.bounds.host_mib);
  app.add_option("--timeout", request.timeout_s, "seconds after which it counts as stuck");
  app.add_option("--json", request.json_file);
  CLI11_PARSE(app, argc, argv);
  if (settings.calls == 0 && settings.seconds == 0) settings.seconds = 60;
  return launch(request, "/proc/self/exe");
}

}  // namespace
}  // namespace shunt::soak

int main(int argc, char** argv) {
  const bool is_worker = argc == 2 && std::isdigit(static_cast<unsigned char>(argv[1][0])) != 0;
  if (is_worker) return shunt::bench::worker_main(argc, argv, shunt::soak::work);
  try {
    return shunt::soak::soak(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak: %s\n", error.what());
    return 2;
  }
}
