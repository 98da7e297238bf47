#include "tools/bench/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/bench/statistics.h"
#include "tools/bench/text.h"

namespace shunt::bench {
namespace {

std::string number(double value, const char* format) {
  if (std::isnan(value)) return "-";
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string microseconds(double value) { return number(value, value < 100 ? "%.2f" : "%.1f"); }

// Picks a figure of a path; NaN where there is none.
using Figure = std::function<double(const PathSummary&)>;

double figure_of(const std::optional<PathSummary>& path, const Figure& figure) {
  return path ? figure(*path) : std::nan("");
}

double device(const PathSummary& path) { return median(path.device_us); }
double device_min(const PathSummary& path) { return minimum(path.device_us); }
double wall(const PathSummary& path) { return median(path.wall_us); }
double host(const PathSummary& path) {
  return path.host_us.empty() ? std::nan("") : std::ranges::max(path.host_us);
}

void add_comparison(std::vector<Column>& columns, const std::string& what, bool two_paths,
                    const Figure& figure) {
  const auto title = [&](const char* path) { return what.empty() ? path : path + (" " + what); };
  columns.push_back({title("NCCL us"), 10, [figure](const Row& row) {
                       return microseconds(figure_of(row.nccl, figure));
                     }});
  if (!two_paths) return;
  columns.push_back({title("shunt us"), 10, [figure](const Row& row) {
                       return microseconds(figure_of(row.shunt, figure));
                     }});
  columns.push_back({title("ratio"), 7, [figure](const Row& row) {
                       return number(figure_of(row.shunt, figure) / figure_of(row.nccl, figure),
                                     "%.3f");
                     }});
}

void add_errors(std::vector<Column>& columns, bool two_paths) {
  const Figure rms = [](const PathSummary& path) { return path.rms; };
  columns.push_back(
      {"NCCL rms", 9, [rms](const Row& row) { return number(figure_of(row.nccl, rms), "%.1e"); }});
  if (!two_paths) return;
  columns.push_back({"shunt rms", 9,
                     [rms](const Row& row) { return number(figure_of(row.shunt, rms), "%.1e"); }});
}

std::string padded(const std::string& text, int width) {
  const auto missing =
      std::max<std::ptrdiff_t>(0, width - static_cast<std::ptrdiff_t>(text.size()));
  return std::string(static_cast<size_t>(missing), ' ') + text;
}

}  // namespace

std::vector<Column> columns_for(Mode mode, bool two_paths, const Options& options) {
  std::vector<Column> columns = {
      {"bytes", 9, [](const Row& row) { return std::to_string(row.c.bytes()); }},
      {"count", 9, [](const Row& row) { return std::to_string(row.c.count); }},
      {"type", 8, [](const Row& row) { return std::string(shunt::name_of(row.c.type)); }},
      {"op", 4, [](const Row& row) { return std::string(shunt::name_of(row.c.op)); }},
      {"place", 5, [](const Row& row) { return std::string(name_of(row.c.place)); }},
  };
  if (options.time && mode == Mode::kGraph) {
    add_comparison(columns, "", two_paths, device);
    if (options.alternate) add_comparison(columns, "min", two_paths, device_min);
  }
  if (options.time && mode == Mode::kEager) {
    add_comparison(columns, "host", two_paths, host);
    add_comparison(columns, "done", two_paths, wall);
  }
  if (options.check) {
    add_errors(columns, two_paths);
    columns.push_back(
        {"checks", 7, [options](const Row& row) { return check_word(row, options); }});
  }
  return columns;
}

std::string title_line(const std::vector<Column>& columns) {
  std::string line;
  for (const Column& column : columns) {
    line +=
        padded(column.title, std::max<int>(column.width, static_cast<int>(column.title.size()))) +
        "  ";
  }
  return line;
}

std::string row_line(const std::vector<Column>& columns, const Row& row) {
  std::string line;
  for (const Column& column : columns) {
    line += padded(column.value(row),
                   std::max<int>(column.width, static_cast<int>(column.title.size()))) +
            "  ";
  }
  return line;
}

std::string check_word(const Row& row, const Options& options) {
  if (!row.failures(options).empty()) return "WRONG";
  const auto refused = [](const std::optional<PathSummary>& path) {
    return path && path->code != 0;
  };
  if (refused(row.nccl) || refused(row.shunt)) return "refused";
  if (!options.check) return "-";
  const auto differ = [](const std::optional<PathSummary>& path) {
    return path && !path->ranks_agree;
  };
  return differ(row.nccl) || differ(row.shunt) ? "ok, ranks differ" : "ok";
}

std::string facts_text(const Facts& facts, const Options& options) {
  std::vector<std::string> gpus;
  for (size_t first = 0; first < facts.gpus.size();) {
    size_t last = first;
    while (last < facts.gpus.size() && facts.gpus[last] == facts.gpus[first]) ++last;
    gpus.push_back(std::to_string(last - first) + " x " + facts.gpus[first]);
    first = last;
  }
  std::string text = "NCCL " + facts.nccl_version + ", " + std::to_string(options.ranks) +
                     (options.ranks == 1 ? " rank (" : " ranks (") + name_of(options.launch) +
                     ") on " + join(gpus, ", ") + ", CUDA " +
                     std::to_string(facts.cuda_version / 1000) + "." +
                     std::to_string(facts.cuda_version % 1000 / 10) +
                     (facts.driver_version.empty() ? "" : ", driver " + facts.driver_version);
  if (facts.two_paths()) {
    text += "\nncclAllReduce of " + facts.public_provider + " against pncclAllReduce of " +
            facts.real_provider;
  } else {
    text += "\nonly NCCL is measured: nothing stands in front of it";
  }
  if (facts.emulated()) {
    text += "\nThe GPUs are emulated: results are checked, but the times mean nothing.";
  }
  return text;
}

}  // namespace shunt::bench
