#include "tools/bench/results.h"

#include <cmath>

#include "test/catch.h"
#include "tools/bench/statistics.h"
#include "tools/bench/table.h"

using namespace shunt;
using namespace shunt::bench;

namespace {

Options one_case() {
  Options o;
  o.sizes = parse_sizes("4K");
  o.modes = {Mode::kGraph};
  o.places = {Place::kOutOfPlace};
  return o;
}

Fields result(uint32_t rank, const char* path, std::vector<double> times, uint64_t hash = 1) {
  return Fields("result")
      .set("case", uint64_t{0})
      .set("rank", uint64_t{rank})
      .set("path", path)
      .set("code", uint64_t{0})
      .set("hash", hash)
      .set("checked", uint64_t{1})
      .set("wrong", uint64_t{0})
      .set("problem", "")
      .set("worst", 0.5)
      .set("squared_rms", 1e-6)
      .set("device_us", times)
      .set("host_us", std::vector<double>{})
      .set("wall_us", std::vector<double>{});
}

void introduce(Collector& collector, const char* provider = "libnccl-shunt.so") {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    collector.message(rank, Fields("facts")
                                .set("cuda_version", uint64_t{13000})
                                .set("driver_version", "580.1")
                                .set("nccl_version", "2.28.9")
                                .set("public", provider)
                                .set("real", "libnccl.so.2")
                                .set("real_file", "/lib/libnccl.so.2"));
    collector.message(rank, Fields("gpu").set("rank", uint64_t{rank}).set("name", "Emulated GPU"));
  }
}

}  // namespace

TEST_CASE("a row appears when all ranks and paths have reported; the slowest rank counts") {
  Collector collector(one_case(), 2);
  int rows = 0;
  collector.on_row = [&](const Row&) { ++rows; };
  introduce(collector);
  collector.message(0, result(0, "nccl", {6, 6, 9}));
  collector.message(0, result(0, "shunt", {2, 2, 2}));
  collector.message(1, result(1, "nccl", {7, 5, 5}));
  CHECK(rows == 0);
  collector.message(1, result(1, "shunt", {1, 3, 2}));
  REQUIRE(rows == 1);
  const Row& row = collector.results().rows[0];
  CHECK(row.nccl->device_us == std::vector<double>{7, 6, 9});
  CHECK(median(row.shunt->device_us) == 2);
  CHECK(std::fabs(row.shunt->rms - 1e-3) < 1e-9);
  CHECK(row.failures(one_case()).empty());
  CHECK(check_word(row, one_case()) == "ok");

  const auto columns = columns_for(Mode::kGraph, true, one_case());
  CHECK(title_line(columns).size() == row_line(columns, row).size());
  CHECK_THAT(row_line(columns, row), ContainsSubstring("0.286"));
  CHECK_THAT(facts_text(collector.results().facts, one_case()),
             ContainsSubstring("times mean nothing"));
}

TEST_CASE("without the library there is one path") {
  Collector collector(one_case(), 2);
  introduce(collector, "libnccl.so.2");
  collector.message(0, result(0, "nccl", {6}));
  collector.message(1, result(1, "nccl", {6}));
  CHECK(collector.results().rows[0].nccl);
  CHECK_FALSE(collector.results().rows[0].shunt);
}

TEST_CASE("what fails a case") {
  Row row{{Mode::kGraph, 2048, DataType::kBfloat16, ReduceOp::kSum, Place::kOutOfPlace},
          PathSummary{},
          PathSummary{}};
  Options options = one_case();
  CHECK(row.failures(options).empty());

  row.nccl->ranks_agree = false;  // reported only
  CHECK(row.failures(options).empty());
  CHECK(check_word(row, options) == "ok, ranks differ");

  row.shunt->ranks_agree = false;
  CHECK(row.failures(options).size() == 1);
  options.expect_shunted_up_to = 4095;  // then it was forwarded
  CHECK(row.failures(options).empty());

  row.shunt->problems = {"rank 0: 3 of 8 wrong"};
  CHECK(check_word(row, options) == "WRONG");

  row.shunt = row.nccl = PathSummary{};
  row.shunt->code = 4;
  CHECK_THAT(row.failures(options).at(0), ContainsSubstring("NCCL returned 0"));
  row.nccl->code = 4;
  CHECK(row.failures(options).empty());
  CHECK(check_word(row, options) == "refused");
}

TEST_CASE("counters must equal the calls made") {
  Calls calls;
  calls.by_bytes = {{0, 1}, {8, 10}, {4096, 20}, {4097, 5}};
  calls.refused = 2;
  calls.counters = Counters{{"shunted", 30}, {"forwarded", 8}};
  CHECK(count_failures({calls}, 4096).empty());
  CHECK(count_failures({calls}, 4095).size() == 2);
  calls.counters = Counters{{"shunted", 30}};
  CHECK_THAT(count_failures({calls}, 4096).at(0),
             ContainsSubstring("nothing as forwarded, must be 8"));
  calls.counters.reset();
  CHECK_THAT(count_failures({calls}, 4096).at(0), ContainsSubstring("no counters"));
}
