#include "tools/bench/json_report.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tools/bench/statistics.h"

extern "C" char** environ;

namespace shunt::bench {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no NaN: an absent figure is null.
Json figure(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json times(const std::vector<double>& samples) {
  return {
      {"median", figure(median(samples))}, {"min", figure(minimum(samples))}, {"samples", samples}};
}

Json path_json(const PathSummary& path) {
  Json json = {{"result_code", path.code},
               {"outputs_checked", path.checked},
               {"wrong_elements", path.wrong},
               {"problems", path.problems},
               {"ranks_bit_equal", path.ranks_agree},
               {"worst_error_in_bounds", figure(path.worst)},
               {"rms_error", figure(path.rms)}};
  if (!path.device_us.empty()) json["device_us"] = times(path.device_us);
  if (!path.wall_us.empty()) json["eager_done_us"] = times(path.wall_us);
  if (!path.host_us.empty()) {
    json["eager_host_us"] = {{"slowest_rank", std::ranges::max(path.host_us)},
                             {"median_by_rank", path.host_us}};
  }
  return json;
}

Json ratio(const std::vector<double>& shunt, const std::vector<double>& nccl) {
  return figure(median(shunt) / median(nccl));
}

Json row_json(const Row& row, const Options& options) {
  Json json = {{"mode", name_of(row.c.mode)},
               {"bytes", row.c.bytes()},
               {"count", row.c.count},
               {"type", shunt::name_of(row.c.type)},
               {"op", shunt::name_of(row.c.op)},
               {"place", name_of(row.c.place)},
               {"failures", row.failures(options)}};
  if (row.nccl) json["nccl"] = path_json(*row.nccl);
  if (row.shunt) json["shunt"] = path_json(*row.shunt);
  if (row.nccl && row.shunt) {
    if (!row.shunt->device_us.empty()) {
      json["device_ratio"] = ratio(row.shunt->device_us, row.nccl->device_us);
    }
    if (!row.shunt->wall_us.empty()) {
      json["eager_done_ratio"] = ratio(row.shunt->wall_us, row.nccl->wall_us);
    }
    if (!row.shunt->host_us.empty() && !row.nccl->host_us.empty()) {
      json["eager_host_ratio"] =
          figure(std::ranges::max(row.shunt->host_us) / std::ranges::max(row.nccl->host_us));
    }
  }
  return json;
}

Json calls_json(const std::vector<Calls>& workers) {
  Json json = Json::array();
  for (const Calls& calls : workers) {
    Json made = Json::object();
    for (const auto& [bytes, count] : calls.by_bytes) made[std::to_string(bytes)] = count;
    Json entry = {{"calls_by_bytes", made}, {"refused", calls.refused}};
    if (calls.counters) entry["library_counters"] = *calls.counters;
    json.push_back(entry);
  }
  return json;
}

Json options_json(const Options& options) {
  Json json = {{"check", options.check},
               {"iterations", options.iterations},
               {"data", name_of(options.data)},
               {"seed", options.seed},
               {"misalign", options.misalign},
               {"time", options.time},
               {"graph_calls", options.graph_calls},
               {"warmups", options.warmups},
               {"replays", options.replays},
               {"eager_calls", options.eager_calls},
               {"alternate", options.alternate},
               {"cold_bytes", options.cold_bytes}};
  if (options.expect_shunted_up_to) json["expect_shunted_up_to"] = *options.expect_shunted_up_to;
  return json;
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::vector<std::string> relevant_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    for (const char* prefix : {"NCCL_", "SHUNT_", "CUDA_"}) {
      if (text.starts_with(prefix)) result.push_back(text);
    }
  }
  std::ranges::sort(result);
  return result;
}

std::string to_json(const Results& results, const Options& options, const RunInfo& info) {
  const Facts& facts = results.facts;
  Json environment = Json::object();
  for (const std::string& entry : info.environment) {
    const size_t equals = entry.find('=');
    environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  Json json = {{"tool", "nccl-shunt bench"},
               {"commit", info.commit},
               {"date", info.date},
               {"machine",
                {{"gpus_by_rank", facts.gpus},
                 {"emulated", facts.emulated()},
                 {"cuda_version", facts.cuda_version},
                 {"driver_version", facts.driver_version},
                 {"nccl_version", facts.nccl_version},
                 {"all_reduce_provider", facts.public_provider},
                 {"real_provider", facts.real_provider}}},
               {"ranks", options.ranks},
               {"launch", name_of(options.launch)},
               {"environment", environment},
               {"options", options_json(options)},
               {"failures", info.failures}};
  Json rows = Json::array();
  for (const Row& row : results.rows) rows.push_back(row_json(row, options));
  json["cases"] = rows;
  json["calls_by_worker"] = calls_json(results.calls);
  // Paths and settings of the environment need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  if (!file) throw std::system_error(errno, std::generic_category(), "cannot write " + path);
}

}  // namespace shunt::bench
