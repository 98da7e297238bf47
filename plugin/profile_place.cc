#include "plugin/profile_place.h"

#include <dirent.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>
#include <memory>

namespace shunt::tuner {
namespace {

constexpr char kEnding[] = ".json";

std::string absolute(const GetEnv& get, const char* name) {
  const char* const value = get(name);
  return value != nullptr && *value == '/' ? value : "";
}

bool is_set(const GetEnv& get, const char* name) {
  const char* const value = get(name);
  return value != nullptr && *value != '\0';
}

bool holds_a_profile(const std::string& folder) {
  if (folder.empty()) return false;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), &closedir);
  if (!entries) return false;
  while (const dirent* entry = readdir(entries.get())) {
    const size_t length = std::strlen(entry->d_name);
    constexpr size_t kEnd = sizeof kEnding - 1;
    if (length > kEnd && std::strcmp(entry->d_name + length - kEnd, kEnding) == 0) return true;
  }
  return false;
}

}  // namespace

ProfileSetting profile_setting(const GetEnv& get) {
  const char* const value = get("SHUNT_PROFILE");
  if (value == nullptr) return {};
  for (const char* word : {"", "0", "off", "false", "no"}) {
    if (strcasecmp(value, word) == 0) return {true, ""};
  }
  return {false, value};
}

std::string cache_folder(const GetEnv& get) {
  if (const std::string cache = absolute(get, "XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/nccl-shunt";
  }
  const std::string home = absolute(get, "HOME");
  return home.empty() ? "" : home + "/.cache/nccl-shunt";
}

std::string cache_file(const std::string& folder, const std::string& key) {
  return folder + "/" + key + kEnding;
}

bool may_have_profile(const GetEnv& get) {
  const ProfileSetting setting = profile_setting(get);
  return !setting.off && (!setting.path.empty() || holds_a_profile(cache_folder(get)));
}

std::string plugin_to_offer(const GetEnv& get, const std::string& folder) {
  if (get("NCCL_TUNER_PLUGIN") != nullptr || is_set(get, "NCCL_NET_PLUGIN")) return "";
  if (!may_have_profile(get)) return "";
  const std::string plugin = folder + "/libnccl-tuner-shunt.so";
  return access(plugin.c_str(), R_OK) == 0 ? plugin : "";
}

bool environment_is_trusted() { return getauxval(AT_SECURE) == 0; }

}  // namespace shunt::tuner
