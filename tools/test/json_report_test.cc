#include "tools/bench/json_report.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "test/catch.h"

using namespace shunt;
using namespace shunt::bench;

TEST_CASE("the report is JSON, with null where there is no figure") {
  Results results;
  results.facts.gpus = {"GPU A", "GPU B"};
  results.facts.public_provider = "libnccl-shunt.so";
  PathSummary nccl, shunt_path;
  nccl.device_us = {6, 8, 7};
  shunt_path.device_us = {2.1, 2.1, 2.1};
  shunt_path.worst = std::numeric_limits<double>::infinity();
  results.rows.push_back(
      {{Mode::kGraph, 4, DataType::kBfloat16, ReduceOp::kSum, Place::kInPlace}, nccl, shunt_path});
  results.calls.push_back({{{8, 57}}, 0, Counters{{"shunted", 57}}});
  Options options;
  options.expect_shunted_up_to = 8;

  const auto json = nlohmann::json::parse(
      to_json(results, options,
              {"abc", "2024-01-01T00:00:00Z", {"NCCL_DEBUG=INFO=\xff"}, {"rank 1: bad"}}));
  CHECK(json["machine"]["gpus_by_rank"][1] == "GPU B");
  CHECK(json["commit"] == "abc");
  CHECK(json["environment"].contains("NCCL_DEBUG"));
  CHECK(json["failures"][0] == "rank 1: bad");
  CHECK(json["options"]["expect_shunted_up_to"] == 8);
  const auto& row = json["cases"][0];
  CHECK(row["bytes"] == 8);
  CHECK(row["nccl"]["device_us"]["median"] == 7);
  CHECK(row["nccl"]["device_us"]["min"] == 6);
  CHECK(std::fabs(row["device_ratio"].get<double>() - 0.3) < 1e-9);
  CHECK(row["shunt"]["worst_error_in_bounds"].is_null());
  CHECK_FALSE(row["shunt"].contains("eager_host_us"));
  CHECK(json["calls_by_worker"][0]["calls_by_bytes"]["8"] == 57);
  CHECK(json["calls_by_worker"][0]["library_counters"]["shunted"] == 57);
}

TEST_CASE("a file that cannot be written is an error") {
  CHECK_THROWS_WITH(write_file("/proc/no/such/folder", "x"), ContainsSubstring("cannot write"));
}
