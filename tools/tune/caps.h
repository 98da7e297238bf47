// What the preloaded library finds where it measures its cap, for the profile.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plugin/profile.h"
#include "tools/trial/trial.h"

namespace shunt::tune {

// Has the library measure on communicators as `base` describes them, one for each placement that
// `p2p` leaves. In jobs with this profile NCCL chooses by its rules, and so it does here:
// `profile_path` is the file, without caps still, that the workers' NCCL follows. `on_note`: why
// there is nothing of a placement, one line.
std::vector<tuner::ShuntCap> measure_caps(const trial::Request& base,
                                          const std::string& profile_path, bool p2p,
                                          const std::function<void(const std::string&)>& on_note);

}  // namespace shunt::tune
