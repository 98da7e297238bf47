// Reading what the ranks of a case print and what the stand-ins trace.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace cases {

// The largest S of the lines "prepared in S s"; very large if there is none.
inline double slowest_preparing(const std::string& output) {
  const std::string head = "prepared in ";
  double slowest = -1;
  for (size_t at = output.find(head); at != std::string::npos; at = output.find(head, at + 1)) {
    slowest = std::max(slowest, std::strtod(output.c_str() + at + head.size(), nullptr));
  }
  return slowest < 0 ? 1e9 : slowest;
}

// The lines of `text` that contain `part`.
inline std::vector<std::string> lines_with(const std::string& text, const std::string& part) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) found.push_back(line);
  }
  return found;
}

}  // namespace cases
