#include "tools/bench/results.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "tools/bench/statistics.h"
#include "tools/bench/text.h"

namespace shunt::bench {

std::vector<std::string> Row::failures(const Options& options) const {
  std::vector<std::string> result;
  const auto add_problems = [&](const char* path, const PathSummary& summary) {
    for (const std::string& problem : summary.problems) {
      result.push_back(std::string(path) + ": " + problem);
    }
  };
  if (nccl) add_problems("nccl", *nccl);
  if (!shunt) return result;
  add_problems("shunt", *shunt);
  if (nccl && nccl->code != shunt->code) {
    result.push_back("NCCL returned " + std::to_string(nccl->code) + ", with the library " +
                     std::to_string(shunt->code));
  }
  // NCCL's own ranks may differ (it is reported); those of a call that it was given back may too.
  const bool forwarded = options.expect_shunted_up_to && c.bytes() > *options.expect_shunted_up_to;
  if (!shunt->ranks_agree && !forwarded) result.push_back("shunt: ranks got different bits");
  return result;
}

bool Facts::emulated() const {
  return std::ranges::any_of(gpus, [](std::string name) {
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name.find("emulated") != std::string::npos;
  });
}

std::vector<std::string> count_failures(const std::vector<Calls>& calls, uint64_t up_to) {
  std::vector<std::string> result;
  for (size_t worker = 0; worker < calls.size(); ++worker) {
    const std::string name = "worker " + std::to_string(worker);
    if (!calls[worker].counters) {
      result.push_back(name + ": the library printed no counters");
      continue;
    }
    uint64_t shunted = 0, forwarded = calls[worker].refused;
    for (const auto& [bytes, count] : calls[worker].by_bytes) {
      (bytes > 0 && bytes <= up_to ? shunted : forwarded) += count;
    }
    for (const auto& [key, expected] :
         {std::pair{"shunted", shunted}, std::pair{"forwarded", forwarded}}) {
      const auto found = calls[worker].counters->find(key);
      const std::string counted =
          found == calls[worker].counters->end() ? "nothing" : std::to_string(found->second);
      if (counted != std::to_string(expected)) {
        result.push_back(name + ": counted " + counted + " as " + key + ", must be " +
                         std::to_string(expected));
      }
    }
  }
  return result;
}

Collector::Collector(const Options& options, uint32_t workers) : options_(options) {
  const std::vector<Case> cases = make_cases(options);
  partial_.resize(cases.size());
  for (const Case& c : cases) results_.rows.push_back({c, {}, {}});
  results_.calls.resize(workers);
  results_.facts.gpus.resize(options.ranks);
}

void Collector::message(uint32_t worker, const Fields& message) {
  if (message.kind() == "facts") {
    add_facts(message);
  } else if (message.kind() == "gpu") {
    add_gpu(message);
  } else if (message.kind() == "result") {
    add_result(message);
  } else if (message.kind() == "calls") {
    add_calls(results_.calls.at(worker), message);
  } else {
    throw std::runtime_error("unknown message '" + message.kind() + "'");
  }
}

bool Collector::error_line(uint32_t worker, const std::string& line) {
  const auto counters = parse_stats(line);
  if (!counters) return false;
  auto& sum = results_.calls.at(worker).counters;
  if (!sum) sum.emplace();
  for (const auto& [key, value] : *counters) (*sum)[key] += value;
  return true;
}

void Collector::add_facts(const Fields& message) {
  Facts& facts = results_.facts;
  facts.cuda_version = message.number("cuda_version");
  facts.driver_version = message.text("driver_version");
  facts.nccl_version = message.text("nccl_version");
  facts.public_provider = message.text("public");
  facts.real_provider = message.text("real");
  facts.real_file = message.text("real_file");
}

void Collector::add_gpu(const Fields& message) {
  results_.facts.gpus.at(message.number("rank")) = message.text("name");
  // A worker sends its facts before its GPUs.
  if (++gpus_ == options_.ranks && on_facts) on_facts(results_.facts);
}

void Collector::add_calls(Calls& calls, const Fields& message) {
  for (const auto& [key, value] : message.all()) {
    if (key == "refused") {
      calls.refused += message.number(key);
    } else {
      calls.by_bytes[parse_number(key)] += message.number(key);
    }
  }
}

void Collector::add_result(const Fields& message) {
  const bool is_shunt = message.text("path") == "shunt";
  Partial& partial = partial_.at(message.number("case"))[is_shunt ? 1 : 0];
  PathSummary& summary = partial.summary;
  ++partial.ranks;
  summary.code = std::max(summary.code, message.number("code"));
  summary.checked += message.number("checked");
  summary.wrong += message.number("wrong");
  if (!message.text("problem").empty()) {
    summary.problems.push_back("rank " + message.text("rank") + ": " + message.text("problem"));
  }
  summary.worst = std::max(summary.worst, message.real("worst"));
  partial.squared_rms += message.real("squared_rms");
  const uint64_t hash = message.number("hash");
  if (partial.hash && *partial.hash != hash) summary.ranks_agree = false;
  partial.hash = hash;
  partial.device_us.push_back(message.reals("device_us"));
  partial.wall_us.push_back(message.reals("wall_us"));
  if (const auto host = message.reals("host_us"); !host.empty()) {
    summary.host_us.push_back(median(host));
  }
  emit_rows();
}

void Collector::emit_rows() {
  const uint32_t paths = results_.facts.two_paths() ? 2 : 1;
  for (; next_row_ < partial_.size(); ++next_row_) {
    for (uint32_t path = 0; path < paths; ++path) {
      if (partial_[next_row_][path].ranks < options_.ranks) return;
    }
    Row& row = results_.rows[next_row_];
    for (uint32_t path = 0; path < paths; ++path) {
      Partial& partial = partial_[next_row_][path];
      partial.summary.device_us = slowest(partial.device_us);
      partial.summary.wall_us = slowest(partial.wall_us);
      if (partial.summary.checked > 0) {
        partial.summary.rms =
            std::sqrt(partial.squared_rms / static_cast<double>(partial.summary.checked));
      }
      (path == 0 ? row.nccl : row.shunt) = std::move(partial.summary);
    }
    if (on_row) on_row(row);
  }
}

}  // namespace shunt::bench
