// Where profiles lie. Cheap to ask: no file is read.
#pragma once

#include <functional>
#include <string>

namespace shunt::tuner {

using GetEnv = std::function<const char*(const char*)>;

// What SHUNT_PROFILE says. Off: 0, off, false, no or empty, in any case of letters.
struct ProfileSetting {
  bool off = false;
  std::string path;  // empty: look in the cache
};
ProfileSetting profile_setting(const GetEnv& get);

// $XDG_CACHE_HOME/nccl-shunt, else $HOME/.cache/nccl-shunt; empty: neither is an absolute path.
std::string cache_folder(const GetEnv& get);

// cache_folder's file of a fingerprint with this key.
std::string cache_file(const std::string& folder, const std::string& key);

// Whether a profile is named, or any lies in the cache: looking for one that fits takes longer.
bool may_have_profile(const GetEnv& get);

// The path for NCCL_TUNER_PLUGIN; empty: leave it alone. Only where there is a profile, for a
// plugin without opinion still takes the place of another one (a network plugin's), and only where
// the user has set neither NCCL_TUNER_PLUGIN nor NCCL_NET_PLUGIN. `folder`: where the plugin lies.
// Equal on all ranks of a communicator unless these variables or the files differ between them; so
// SHUNT_ENABLE, which may differ, is not looked at.
std::string plugin_to_offer(const GetEnv& get, const std::string& folder);

// False in a program that runs with more rights than its caller (set-uid): its environment and its
// caller's files are not to be trusted.
bool environment_is_trusted();

}  // namespace shunt::tuner
