// Where the product's files lie, seen from the running nccl-shunt, and how a library is preloaded.
#pragma once

#include <string>

namespace shunt::cli {

// Both look relative to the executable, in a build tree and where it was installed, and throw
// std::runtime_error that names the file that is missing.
std::string find_library();  // libnccl-shunt.so
std::string find_worker();
std::string find_tune_worker();   // nccl-shunt-bench-worker

// The value of LD_PRELOAD with `library` first. `existing` may be null.
std::string prepended(const std::string& library, const char* existing);

// Replaces this process by `program` (argv, null-terminated, looked up in PATH) with the library
// preloaded. Returns only on failure: the exit status that env(1) uses, with a line on stderr.
int run(char** program);

}  // namespace shunt::cli
