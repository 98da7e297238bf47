#include "tools/cli/preload.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "plugin/profile_place.h"

namespace shunt::cli {
namespace {

std::string find_near(const char* file_name) {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path file = (here / file_name).lexically_normal();
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    throw std::runtime_error(file.string() + " is missing: the installation is incomplete");
  }
  return file.string();
}

// The library does the same when a program first uses NCCL; here also for an NCCL that it cannot
// see, one that is linked into a program statically.
void offer_plugin(const std::string& folder) {
  const auto get = [](const char* name) -> const char* { return std::getenv(name); };
  const std::string plugin = tuner::plugin_to_offer(get, folder);
  if (!plugin.empty()) setenv("NCCL_TUNER_PLUGIN", plugin.c_str(), 1);
}

}  // namespace

std::string find_library() { return find_near("../lib/libnccl-shunt.so"); }

std::string find_worker() { return find_near("../libexec/nccl-shunt/nccl-shunt-bench-worker"); }

std::string find_tune_worker() { return find_near("../libexec/nccl-shunt/nccl-shunt-tune-worker"); }

std::string prepended(const std::string& library, const char* existing) {
  if (existing == nullptr || *existing == '\0') return library;
  return library + ":" + existing;
}

int run(char** program) {
  try {
    const std::string library = find_library();
    // The dynamic linker splits the value at blanks and colons and knows no quoting.
    if (library.find_first_of(" :") != std::string::npos) {
      throw std::runtime_error("LD_PRELOAD cannot name '" + library +
                               "': move it to a folder without blanks and colons");
    }
    setenv("LD_PRELOAD", prepended(library, std::getenv("LD_PRELOAD")).c_str(), 1);
    offer_plugin(std::filesystem::path(library).parent_path());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl-shunt run: %s\n", error.what());
    return 125;
  }
  execvp(program[0], program);
  const int error = errno;
  std::fprintf(stderr, "nccl-shunt run: %s: %s\n", program[0], std::strerror(error));
  return error == ENOENT ? 127 : 126;
}

}  // namespace shunt::cli
