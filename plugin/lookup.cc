#include "plugin/lookup.h"

#include <optional>
#include <stdexcept>

#include "plugin/profile_file.h"
#include "plugin/profile_guard.h"
#include "plugin/profile_json.h"

namespace shunt::tuner {
namespace {

std::string shown(const std::string& path) { return printable(path, 300); }

Found nothing(const std::string& why) { return {nullptr, why, false}; }
Found unusable(const std::string& path, const std::string& why) {
  return {nullptr, "profile " + shown(path) + " is ignored: " + why, true};
}

}  // namespace

Found find_profile(const GetEnv& get, const Fingerprint& here) {
  if (!environment_is_trusted()) return nothing("no profile: the program runs set-uid");
  const ProfileSetting setting = profile_setting(get);
  if (setting.off) return nothing("no profile: SHUNT_PROFILE is off");
  const bool named = !setting.path.empty();
  const std::string folder = cache_folder(get);
  if (!named && folder.empty()) return nothing("no profile: no cache folder");
  const std::string path = named ? setting.path : cache_file(folder, key_of(here));
  try {
    const std::optional<std::string> text = read_profile_file(path);
    if (!text && named) return unusable(path, "there is no such file");
    if (!text) return nothing("no profile for this machine (" + shown(path) + ")");
    auto profile = std::make_shared<const Profile>(parse_profile(*text));
    if (const std::string what = difference(profile->machine, here); !what.empty()) {
      // A job has communicators of several sizes, and a profile is for one: no error.
      if (profile->machine.ranks != here.ranks) {
        return nothing("no profile for " + std::to_string(here.ranks) + " ranks: " + shown(path) +
                       " is for " + std::to_string(profile->machine.ranks));
      }
      return unusable(path, "made elsewhere: " + printable(what, 400));
    }
    if (!named && !any_gpus_alike(here)) {
      return nothing("no profile: " + std::to_string(here.ranks) + " of " +
                     std::to_string(here.gpus.size()) +
                     " GPUs that are not all joined alike; SHUNT_PROFILE=" + shown(path) +
                     " uses it all the same");
    }
    return {profile, "profile " + shown(path), false};
  } catch (const std::exception& error) {
    return unusable(path, error.what());
  }
}

}  // namespace shunt::tuner
