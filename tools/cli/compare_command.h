// `nccl-shunt compare A.json B.json`: two results of `nccl-shunt bench --json`.
#pragma once

#include <string>

namespace shunt::cli {

// Prints both side by side. 0: B is nowhere slower than A beyond noise; 1: it is. Throws
// std::exception for files that are no results, or have no case in common.
int compare(const std::string& a, const std::string& b);

}  // namespace shunt::cli
