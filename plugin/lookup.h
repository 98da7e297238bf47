// Which profile a communicator follows.
#pragma once

#include <memory>
#include <string>

#include "plugin/profile.h"
#include "plugin/profile_place.h"

namespace shunt::tuner {

struct Found {
  std::shared_ptr<const Profile> profile;  // null: none
  std::string line;                        // which one, or why none
  bool error = false;                      // a file is there and cannot be used
};

// `here` is complete, ranks too. Every rank of a communicator comes to the same answer as long as
// variables and files are the same for all: nothing else enters.
Found find_profile(const GetEnv& get, const Fingerprint& here);

}  // namespace shunt::tuner
