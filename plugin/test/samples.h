// A machine and a profile to begin with.
#pragma once

#include <string>

#include "plugin/profile.h"

namespace shunt::tuner {

Fingerprint sample_machine();  // two "Test GPU", joined by "PHB p2p"; NCCL 2.28.9; 2 ranks
// All-reduce: ring/LL up to 1024, nothing to 4095, tree/Simple with 4 channels from 4096 to 8192;
// all-gather: ring/LL128 from 16 to 16; reduce-scatter: nothing.
Profile sample_profile();

// A folder that is removed at the end.
class Folder {
 public:
  Folder();
  Folder(const Folder&) = delete;
  ~Folder();
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text, int mode = 0600) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace shunt::tuner
