#include "tools/bench/compare.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "tools/bench/sizes.h"
#include "tools/bench/statistics.h"
#include "tools/bench/text.h"

namespace shunt::bench {
namespace {

using Json = nlohmann::ordered_json;

template <typename... Values>
std::string line(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  return std::string(text) + "\n";
}

std::string case_name(const Json& row, const char* path) {
  const auto word = [&](const char* member) { return row.at(member).get<std::string>(); };
  return word("mode") + " " + bytes_text(row.at("bytes").get<uint64_t>()) + " " + word("type") +
         " " + word("op") + " " + word("place") + " " + path;
}

void add_case(std::vector<TimedCase>& cases, const Json& row, const char* path) {
  if (!row.contains(path)) return;
  for (const char* times : {"device_us", "eager_done_us"}) {
    if (!row.at(path).contains(times)) continue;
    auto samples = row.at(path).at(times).at("samples").get<std::vector<double>>();
    if (!samples.empty()) cases.push_back({case_name(row, path), std::move(samples)});
  }
}

std::string machine_text(const Json& json) {
  const Json& machine = json.at("machine");
  const auto text = [](const Json& from, const char* member) {
    return from.at(member).get<std::string>();
  };
  const auto gpus = machine.at("gpus_by_rank").get<std::vector<std::string>>();
  const std::set<std::string> names(gpus.begin(), gpus.end());
  return std::to_string(gpus.size()) + " x " + join({names.begin(), names.end()}, " or ") +
         ", NCCL " + text(machine, "nccl_version") + ", driver " + text(machine, "driver_version") +
         ", commit " + text(json, "commit") + ", " + text(json, "date");
}

std::vector<std::string> missing(const std::vector<std::string>& of,
                                 const std::vector<std::string>& in) {
  std::vector<std::string> result;
  std::ranges::set_difference(of, in, std::back_inserter(result));
  return result;
}

const char* word_for(Change change) {
  return change == Change::kNone ? "" : change == Change::kFaster ? "faster" : "slower";
}

}  // namespace

TimedRun parse_run(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("tool") != "nccl-shunt bench") throw std::runtime_error("made by another tool");
    TimedRun run;
    run.machine = machine_text(json);
    for (const auto& [name, value] : json.at("environment").items()) {
      run.environment.push_back(name + "=" + value.get<std::string>());
    }
    std::ranges::sort(run.environment);
    for (const Json& row : json.at("cases")) {
      for (const char* path : {"nccl", "shunt"}) add_case(run.cases, row, path);
    }
    run.failures = json.at("failures").size();
    run.emulated = json.at("machine").at("emulated").get<bool>();
    return run;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("no result of nccl-shunt bench: ") + error.what());
  }
}

Change change_of(const std::vector<double>& a, const std::vector<double>& b) {
  if (std::min(a.size(), b.size()) < kFewestSamples) return Change::kNone;
  const double ratio = median(b) / median(a);
  const auto [a_min, a_max] = std::ranges::minmax(a);
  const auto [b_min, b_max] = std::ranges::minmax(b);
  if (ratio < 1 - kNoise && b_max < a_min) return Change::kFaster;
  if (ratio > 1 + kNoise && b_min > a_max) return Change::kSlower;
  return Change::kNone;
}

size_t Comparison::count(Change change) const {
  return static_cast<size_t>(std::ranges::count(cases, change, &Compared::change));
}

Comparison compare_runs(const TimedRun& a, const TimedRun& b) {
  Comparison comparison;
  for (const TimedCase& one : a.cases) {
    const auto other = std::ranges::find(b.cases, one.name, &TimedCase::name);
    if (other == b.cases.end()) {
      comparison.only_a.push_back(one.name);
    } else {
      comparison.cases.push_back({one.name, median(one.samples), median(other->samples),
                                  change_of(one.samples, other->samples)});
    }
  }
  for (const TimedCase& one : b.cases) {
    if (std::ranges::find(a.cases, one.name, &TimedCase::name) == a.cases.end())
      comparison.only_b.push_back(one.name);
  }
  return comparison;
}

std::string text_of(const TimedRun& a, const TimedRun& b, const Comparison& comparison) {
  std::string text = "A  " + a.machine + "\nB  " + b.machine + "\n";
  for (const std::string& setting : missing(a.environment, b.environment))
    text += "only A: " + setting + "\n";
  for (const std::string& setting : missing(b.environment, a.environment))
    text += "only B: " + setting + "\n";
  for (const auto& [name, run] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (run->failures > 0) text += line("%s had %zu failures", name, run->failures);
    if (run->emulated) text += line("%s is of emulated GPUs: its times mean nothing", name);
  }
  text += line("\n%-44s %10s %10s %7s", "", "A us", "B us", "ratio");
  for (const Compared& c : comparison.cases) {
    std::string row = line("%-44s %10.2f %10.2f %7.3f  %s", c.name.c_str(), c.a_us, c.b_us,
                           c.b_us / c.a_us, word_for(c.change));
    row.erase(row.find_last_not_of(" \n") + 1);
    text += row + "\n";
  }
  text += line("\nB against A: %zu faster, %zu slower, %zu within noise",
               comparison.count(Change::kFaster), comparison.count(Change::kSlower),
               comparison.count(Change::kNone));
  for (const std::string& name : comparison.only_a) text += "only in A: " + name + "\n";
  for (const std::string& name : comparison.only_b) text += "only in B: " + name + "\n";
  return text;
}

}  // namespace shunt::bench
