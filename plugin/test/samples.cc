#include "plugin/test/samples.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "plugin/abi.h"

namespace shunt::tuner {

Fingerprint sample_machine() {
  return {{"Test GPU", "Test GPU"}, {"PHB p2p"}, "580.1", "2.28.9", 2, {}};
}

Profile sample_profile() {
  Profile profile;
  profile.machine = sample_machine();
  profile.all_reduce = {{1, 1024, {abi::kRing, abi::kLl, 0}, 5, 6},
                        {4096, 8192, {abi::kTree, abi::kSimple, 4}, 7, 9}};
  profile.all_gather = {{16, 16, {abi::kRing, abi::kLl128, 0}, 0, 0}};
  return profile;
}

Folder::Folder() {
  std::string name = std::filesystem::temp_directory_path() / "nccl-shunt-tuner-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) std::abort();
  path_ = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string Folder::write(const std::string& name, const std::string& text, int mode) const {
  std::ofstream(file(name)) << text;
  chmod(file(name).c_str(), static_cast<mode_t>(mode));
  return file(name);
}

}  // namespace shunt::tuner
