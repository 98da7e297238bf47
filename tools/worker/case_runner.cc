#include "tools/worker/case_runner.h"

#include <algorithm>
#include <chrono>

#include "tools/worker/graph_timer.h"

namespace shunt::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

void note(Finding& finding, const std::string& problem) {
  if (finding.problem.empty()) finding.problem = problem;
}

}  // namespace

CaseRunner::CaseRunner(Team& team, const Case& c, uint32_t index, const std::vector<Path>& paths)
    : team_(team),
      options_(team.options()),
      case_(c),
      index_(index),
      paths_(paths),
      findings_(team.size()),
      inputs_(team.size(), std::vector<std::byte>(c.bytes())) {
  team_.each([&](size_t, Member& member) { buffers_.emplace_back(options_, case_, member.rank); });
  for (uint32_t set = 0; set < buffers_[0].sets(); ++set) {
    Call call{{}, {}, case_.count, case_.type, case_.op};
    for (const Buffers& buffers : buffers_) {
      call.send.push_back(buffers.send(set));
      call.receive.push_back(buffers.receive(set));
    }
    calls_.push_back(std::move(call));
  }
}

void CaseRunner::run() {
  phase("start", paths_[0]);
  team_.barrier();
  if (options_.check) check();
  if (options_.time) time();
  phase("end", paths_[0]);
  team_.barrier();  // freeing memory waits for kernels, and a kernel may wait for a peer
  report();
}

void CaseRunner::check() {
  std::array<Graphs, kPaths> graphs;
  for (const Path path : paths_) {
    if (case_.mode == Mode::kGraph) graphs[static_cast<uint32_t>(path)] = capture(path, 1);
  }
  for (uint32_t iteration = 0; iteration < options_.iterations; ++iteration) {
    load(iteration);
    for (const Path path : paths_) {
      if (refused(path)) continue;
      phase("check", path);
      prepare();
      if (case_.mode == Mode::kGraph) {
        team_.launch(graphs[static_cast<uint32_t>(path)]);
      } else {
        const ncclResult_t code = enqueue(path, 0);
        team_.agree(code);
        set_code(path, code);
        if (refused(path)) continue;
      }
      team_.synchronize();
      verify(path, 1, true);
    }
  }
  team_.synchronize();
}

void CaseRunner::time() {
  load(options_.iterations);
  std::array<Graphs, kPaths> graphs;
  for (const Path path : paths_) {
    if (case_.mode == Mode::kGraph) {
      graphs[static_cast<uint32_t>(path)] = capture(path, options_.graph_calls);
    }
  }
  const uint32_t rounds = options_.alternate ? 2 : 1;
  for (uint32_t round = 0; round < rounds; ++round) {
    for (const Path path : paths_) {
      if (refused(path)) continue;
      phase("time", path);
      if (case_.mode == Mode::kGraph) {
        time_graph(path, graphs[static_cast<uint32_t>(path)]);
      } else {
        time_eager(path);
      }
    }
  }
}

void CaseRunner::time_eager(Path path) {
  constexpr uint32_t kBatch = 20;  // short, so that the launch queue never fills
  const uint32_t batches = (options_.eager_calls + kBatch - 1) / kBatch;
  const auto ranks = static_cast<double>(team_.size());
  const uint32_t sets = buffers_[0].sets();
  for (uint32_t batch = 0; batch < batches + 1; ++batch) {
    prepare();
    team_.synchronize();
    team_.barrier();
    const bool warm_up = batch == 0;
    const auto begin = Clock::now();
    for (uint32_t call = 0; call < kBatch; ++call) {
      const auto before = Clock::now();
      const ncclResult_t code = enqueue(path, call % sets);
      const auto after = Clock::now();
      if (warm_up && call == 0) {
        team_.agree(code);
        set_code(path, code);
        if (refused(path)) return;
      }
      if (warm_up) continue;
      for (size_t i = 0; i < team_.size(); ++i) {
        finding(i, path).host_us.push_back(microseconds(after - before) / ranks);
      }
    }
    team_.synchronize();
    const double wall = microseconds(Clock::now() - begin) / kBatch;
    if (warm_up) continue;
    for (size_t i = 0; i < team_.size(); ++i) finding(i, path).wall_us.push_back(wall);
  }
  if (options_.check) verify(path, std::min(sets, kBatch), case_.place == Place::kOutOfPlace);
}

void CaseRunner::time_graph(Path path, const Graphs& graphs) {
  const Replays replays{options_.warmups, options_.replays, options_.graph_calls};
  const auto times = replay_times(team_, graphs, replays, [this] { prepare(); });
  for (size_t i = 0; i < team_.size(); ++i) {
    std::vector<double>& all = finding(i, path).device_us;
    all.insert(all.end(), times[i].begin(), times[i].end());
  }
  if (options_.check) {
    const uint32_t sets = std::min(buffers_[0].sets(), options_.graph_calls);
    verify(path, sets, case_.place == Place::kOutOfPlace);
  }
}

void CaseRunner::load(uint32_t iteration) {
  description_ = inputs_of(options_, case_, iteration);
  team_.each([&](size_t i, Member& member) {
    fill(description_, member.rank, 0, inputs_[i]);
    buffers_[i].load(member.stream.get(), inputs_[i]);
  });
}

void CaseRunner::prepare() {
  poison_ = static_cast<uint8_t>(poison_ * 37 + 0x5b);  // another value each time
  team_.each([&](size_t i, Member& member) { buffers_[i].prepare(member.stream.get(), poison_); });
}

CaseRunner::Graphs CaseRunner::capture(Path path, uint32_t calls) {
  if (refused(path)) return {};
  phase("capture", path);
  ncclResult_t code = ncclSuccess;
  Graphs graphs = team_.capture(
      [&] {
        for (uint32_t call = 0; call < calls; ++call) {
          const ncclResult_t result = enqueue(path, call % buffers_[0].sets());
          if (result != ncclSuccess) return result;
        }
        return ncclSuccess;
      },
      code);
  team_.agree(code);
  set_code(path, code);
  return graphs;
}

void CaseRunner::verify(Path path, uint32_t sets, bool by_value) {
  team_.each([&](size_t i, Member& member) {
    Finding& found = finding(i, path);
    std::vector<std::byte> first;
    for (uint32_t set = 0; set < sets; ++set) {
      std::string faults;
      std::vector<std::byte> output =
          buffers_[i].take(member.stream.get(), set, poison_, inputs_[i], faults);
      found.hash = found.hash * 0x100000001b3 ^ hash_of(output);
      if (!faults.empty()) note(found, faults);
      if (!by_value) continue;
      if (set == 0) {
        judge(found, path, output);
        first = std::move(output);
      } else if (output != first) {
        ++found.wrong;
        note(found, "equal calls in one graph gave different results");
      }
    }
  });
}

void CaseRunner::judge(Finding& found, Path path, std::span<const std::byte> output) {
  // Only a call that is known to be shunted must be as good as one rounding.
  const bool shunted = path == Path::kShunt && options_.expect_shunted_up_to &&
                       case_.bytes() <= *options_.expect_shunted_up_to;
  const Comparison comparison =
      compare(description_, shunted ? Rounding::kOnce : Rounding::kEachHop, output);
  ++found.checked;
  found.wrong += comparison.wrong;
  found.worst = std::max(found.worst, comparison.worst);
  found.squared_rms += comparison.rms * comparison.rms;
  if (comparison.wrong != 0) {
    note(found, std::to_string(comparison.wrong) + " of " + std::to_string(comparison.elements) +
                    " wrong; " + comparison.first_wrong);
  }
}

void CaseRunner::set_code(Path path, ncclResult_t code) {
  for (size_t i = 0; i < team_.size(); ++i) finding(i, path).code = code;
}

void CaseRunner::phase(const char* what, Path path) {
  team_.phase(describe(case_) + ": " + what + " " + name_of(path));
}

void CaseRunner::report() {
  for (size_t i = 0; i < team_.size(); ++i) {
    for (const Path path : paths_) {
      const Finding& found = finding(i, path);
      team_.channel().send(Fields("result")
                               .set("case", uint64_t{index_})
                               .set("rank", uint64_t{team_.member(i).rank})
                               .set("path", name_of(path))
                               .set("code", static_cast<uint64_t>(found.code))
                               .set("hash", found.hash)
                               .set("checked", found.checked)
                               .set("wrong", found.wrong)
                               .set("problem", found.problem)
                               .set("worst", found.worst)
                               .set("squared_rms", found.squared_rms)
                               .set("device_us", found.device_us)
                               .set("host_us", found.host_us)
                               .set("wall_us", found.wall_us));
    }
  }
}

}  // namespace shunt::bench
