// The report that people read: aligned columns, a row as soon as its case is done.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/results.h"

namespace shunt::bench {

struct Column {
  std::string title;
  int width;  // also of the values; longer ones push the rest to the right
  std::function<std::string(const Row&)> value;
};

// Columns of a mode's table. Without a second path, the shunt's columns and the ratio are left out.
std::vector<Column> columns_for(Mode mode, bool two_paths, const Options& options);

std::string title_line(const std::vector<Column>& columns);
std::string row_line(const std::vector<Column>& columns, const Row& row);

// "NCCL 2.28.9, 2 ranks as processes, 2 x NVIDIA H200, driver ...": one or more lines.
std::string facts_text(const Facts& facts, const Options& options);

// The word for the checks of a row: "ok", "WRONG", "refused", "-" (not checked).
std::string check_word(const Row& row, const Options& options);

}  // namespace shunt::bench
