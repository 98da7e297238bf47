#include "tools/bench/options.h"

#include <algorithm>
#include <stdexcept>

#include "test/catch.h"
#include "tools/bench/cases.h"

using namespace shunt;
using namespace shunt::bench;

namespace {

Options small_options() {
  Options o;
  o.sizes = parse_sizes("8,4K");
  return o;
}

}  // namespace

TEST_CASE("words of types, operations, places and modes") {
  CHECK(parse_types("half,bf16,e4m3") ==
        std::vector{DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8e4m3});
  CHECK(parse_types("all").size() == kDataTypes);
  CHECK(parse_ops("sum,avg") == std::vector{ReduceOp::kSum, ReduceOp::kAvg});
  CHECK(parse_ops("all").size() == kReduceOps);
  CHECK(parse_places("in") == std::vector{Place::kInPlace});
  CHECK(parse_modes("graph,eager") == std::vector{Mode::kGraph, Mode::kEager});
  CHECK_THROWS_WITH(parse_types("bf17"), ContainsSubstring("'bf17'"));
  CHECK_THROWS_WITH(parse_ops("sum,"), ContainsSubstring("''"));
  CHECK_THROWS_AS(parse_modes("graphs"), std::invalid_argument);
}

TEST_CASE("options reach a worker unchanged") {
  Options o = small_options();
  o.ranks = 3;
  o.devices = {2, 0, 1};
  o.launch = Launch::kOneThread;
  o.types = parse_types("all");
  o.ops = parse_ops("min,prod");
  o.places = {Place::kInPlace};
  o.modes = {Mode::kGraph};
  o.sizes = parse_sizes("7e,4K");
  o.check = false;
  o.iterations = 9;
  o.data = Data::kExact;
  o.seed = ~uint64_t{0};
  o.misalign = true;
  o.graph_calls = 5;
  o.alternate = true;
  o.cold_bytes = 1 << 20;
  o.expect_shunted_up_to = 0;
  const Options copy = options_from(Fields::parse(to_fields(o).line()));
  // Every field is in the message, so equal messages are equal options.
  CHECK(to_fields(copy).line() == to_fields(o).line());
  CHECK(copy.devices == o.devices);
  CHECK(copy.seed == o.seed);
  CHECK(copy.expect_shunted_up_to == o.expect_shunted_up_to);
  CHECK(make_cases(copy) == make_cases(o));
}

TEST_CASE("contradicting options are refused") {
  CHECK_NOTHROW(validate(small_options()));
  Options o = small_options();
  o.ranks = 0;
  CHECK_THROWS_WITH(validate(o), ContainsSubstring("--ranks"));
  o = small_options();
  o.devices = {0};
  CHECK_THROWS_WITH(validate(o), ContainsSubstring("--devices"));
  o = small_options();
  o.check = o.time = false;
  CHECK_THROWS_AS(validate(o), std::invalid_argument);
}

TEST_CASE("cases: eager before graph, whole elements, no duplicates") {
  Options o = small_options();
  o.types = parse_types("bfloat16,double,int8");
  o.sizes = parse_sizes("7,8,9,0e");
  const std::vector<Case> cases = make_cases(o);
  const auto first_graph =
      std::ranges::find_if(cases, [](const Case& c) { return c.mode == Mode::kGraph; });
  CHECK(
      std::all_of(first_graph, cases.end(), [](const Case& c) { return c.mode == Mode::kGraph; }));
  const auto counts = [&](DataType type) {
    std::vector<uint64_t> result;
    for (const Case& c : cases) {
      if (c.type == type && c.mode == Mode::kEager && c.place == Place::kInPlace) {
        result.push_back(c.count);
      }
    }
    return result;
  };
  CHECK(counts(DataType::kInt8) == std::vector<uint64_t>{7, 8, 9, 0});
  CHECK(counts(DataType::kBfloat16) == std::vector<uint64_t>{3, 4, 0});
  CHECK(counts(DataType::kFloat64) == std::vector<uint64_t>{1, 0});
}
