#include "tools/cli/compare_command.h"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tools/bench/compare.h"

namespace shunt::cli {
namespace {

bench::TimedRun read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) throw std::runtime_error(path + ": cannot be read");
  try {
    return bench::parse_run(text);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

}  // namespace

int compare(const std::string& a_path, const std::string& b_path) {
  const bench::TimedRun a = read(a_path), b = read(b_path);
  const bench::Comparison comparison = compare_runs(a, b);
  if (comparison.cases.empty()) throw std::runtime_error("the two have no timed case in common");
  std::printf("%s", text_of(a, b, comparison).c_str());
  return comparison.count(bench::Change::kSlower) == 0 ? 0 : 1;
}

}  // namespace shunt::cli
