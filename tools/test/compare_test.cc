#include "tools/bench/compare.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "plugin/test/samples.h"
#include "test/catch.h"
#include "tools/bench/json_report.h"

using namespace shunt;
using namespace shunt::bench;

namespace {

Row row(Mode mode, uint64_t count, std::vector<double> nccl_us, std::vector<double> shunt_us) {
  PathSummary nccl, own;
  (mode == Mode::kGraph ? nccl.device_us : nccl.wall_us) = std::move(nccl_us);
  (mode == Mode::kGraph ? own.device_us : own.wall_us) = std::move(shunt_us);
  return {{mode, count, DataType::kBfloat16, ReduceOp::kSum, Place::kOutOfPlace}, nccl, own};
}

// As quiet as samples can be.
std::vector<double> about(double us) { return {us, us * 1.001, us * 1.002, us, us}; }

// As the benchmark writes it.
std::string result(std::vector<Row> rows, std::vector<std::string> environment = {}) {
  Results results;
  results.facts = {{"GPU A", "GPU A"}, 13000,          "580.1",        "2.28.9",
                   "libnccl-shunt.so", "libnccl.so.2", "/libnccl.so.2"};
  results.rows = std::move(rows);
  return to_json(results, {}, {"abc", "2026-01-01T00:00:00Z", std::move(environment), {}});
}

int status_of(const std::string& arguments) {
  const int status =
      std::system((TEST_COMMAND " compare " + arguments + " > /dev/null 2>&1").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

}  // namespace

TEST_CASE("a change is one that the samples show and that is large enough") {
  CHECK(change_of(about(10), about(8)) == Change::kFaster);
  CHECK(change_of(about(8), about(10)) == Change::kSlower);
  CHECK(change_of(about(10), about(10.2)) == Change::kNone);  // apart, and small
  CHECK(change_of(about(10.2), about(10)) == Change::kNone);
  CHECK(change_of(about(10), {8, 8, 8, 8, 10}) == Change::kNone);  // large, and not apart
  CHECK(change_of(about(10), {12, 12, 12, 12, 10}) == Change::kNone);
  CHECK(change_of({10, 10, 10}, {8, 8, 8}) == Change::kNone);  // too few
  CHECK(change_of({}, about(10)) == Change::kNone);
}

TEST_CASE("what the benchmark writes is read and compared by case and path") {
  const TimedRun a = parse_run(result(
      {row(Mode::kGraph, 2048, about(6), about(2)), row(Mode::kEager, 2048, about(12), about(11)),
       row(Mode::kGraph, 8, about(5), about(2))},
      {"SHUNT_CAP=64K", "NCCL_DEBUG=INFO"}));
  const TimedRun b = parse_run(result(
      {row(Mode::kEager, 2048, about(12), about(11)), row(Mode::kGraph, 2048, about(6), about(3)),
       row(Mode::kGraph, 16, about(5), about(2))},
      {"NCCL_DEBUG=INFO"}));
  CHECK(a.cases.size() == 6);
  const Comparison comparison = compare_runs(a, b);
  REQUIRE(comparison.cases.size() == 4);
  CHECK(comparison.cases[0].name == "graph 4K bfloat16 sum out nccl");
  CHECK(comparison.cases[0].change == Change::kNone);
  CHECK(comparison.cases[1].name == "graph 4K bfloat16 sum out shunt");
  CHECK(comparison.cases[1].change == Change::kSlower);
  CHECK(comparison.cases[2].name == "eager 4K bfloat16 sum out nccl");
  CHECK(comparison.only_a.size() == 2);
  CHECK(comparison.only_b.size() == 2);
  const std::string text = text_of(a, b, comparison);
  CHECK_THAT(text, ContainsSubstring("A  2 x GPU A, NCCL 2.28.9, driver 580.1, commit abc"));
  CHECK_THAT(text, ContainsSubstring("only A: SHUNT_CAP=64K"));
  CHECK(text.find("NCCL_DEBUG") == std::string::npos);
  CHECK_THAT(text, ContainsSubstring("2.00       3.00   1.500  slower\n"));
  CHECK_THAT(text, ContainsSubstring("B against A: 0 faster, 1 slower, 3 within noise"));
  CHECK_THAT(text, ContainsSubstring("only in B: graph 32 bfloat16 sum out shunt"));
}

TEST_CASE("other files are one line") {
  std::string damaged = result({row(Mode::kGraph, 8, about(5), about(2))});
  damaged.replace(damaged.find("\"samples\""), 9, "\"sampler\"");
  for (const std::string& text :
       std::vector<std::string>{"", "{", "[]", "{\"tool\": \"another\"}", damaged}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_run(text), ContainsSubstring("no result of nccl-shunt bench: "));
  }
}

TEST_CASE("the command's exit status") {
  const tuner::Folder folder;
  const std::string fast =
      folder.write("fast.json", result({row(Mode::kGraph, 8, about(6), about(2))}));
  const std::string slow =
      folder.write("slow.json", result({row(Mode::kGraph, 8, about(6), about(4))}));
  const std::string other =
      folder.write("other.json", result({row(Mode::kGraph, 16, about(6), about(4))}));
  CHECK(status_of(fast + " " + fast) == 0);
  CHECK(status_of(slow + " " + fast) == 0);
  CHECK(status_of(fast + " " + slow) == 1);
  CHECK(status_of(fast + " " + other) == 2);
  CHECK(status_of(fast + " " + folder.file("missing.json")) == 2);
  CHECK(status_of(fast + " " + folder.path()) == 2);
  CHECK(status_of(fast) == 2);
}
