#include "plugin/fingerprint.h"

#include <algorithm>
#include <cstdlib>

namespace shunt::tuner {
namespace {

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size();) {
    size_t same = i;
    while (same < words.size() && words[same] == words[i]) ++same;
    if (!text.empty()) text += ", ";
    if (same - i > 1) text += std::to_string(same - i) + " x ";
    text += words[i];
    i = same;
  }
  return text.empty() ? "none" : text;
}

std::string listed(const std::map<std::string, std::string>& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    if (!text.empty()) text += ' ';
    text += name + "=" + value;
  }
  return text.empty() ? "no NCCL settings" : text;
}

class Hash {  // FNV-1a over the parts, each ended by a byte that no part holds
 public:
  void add(const std::string& part) {
    for (const char c : part) mix(static_cast<unsigned char>(c));
    mix(0xff);
  }
  std::string text() const {
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[value_ >> shift & 15];
    return digits;
  }

 private:
  void mix(uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

const std::vector<std::string>& relevant_settings() {
  static const std::vector<std::string> names = {
      "NCCL_P2P_DISABLE",   "NCCL_P2P_LEVEL",      "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE",
      "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS",  "NCCL_MIN_CTAS",           "NCCL_MAX_CTAS",
      "NCCL_NTHREADS",      "NCCL_LL128_NTHREADS", "NCCL_BUFFSIZE",           "NCCL_NVLS_ENABLE",
      "NCCL_GRAPH_FILE",    "NCCL_TOPO_FILE"};
  return names;
}

std::map<std::string, std::string> settings_of(const char* (*get)(const char*)) {
  std::map<std::string, std::string> settings;
  for (const std::string& name : relevant_settings()) {
    const char* const value = get(name.c_str());
    if (value == nullptr || *value == '\0') continue;
    // Off is the default of these two, and people write it down.
    const bool off_by_default = name == "NCCL_P2P_DISABLE" || name == "NCCL_SHM_DISABLE";
    if (off_by_default && std::strtol(value, nullptr, 0) == 0) continue;
    settings[name] = value;
  }
  return settings;
}

std::string difference(const Fingerprint& profile, const Fingerprint& here) {
  std::string text;
  const auto compare = [&](const char* what, const std::string& theirs, const std::string& ours) {
    if (theirs == ours) return;
    text += (text.empty() ? "" : "; ") + std::string(what) + theirs + ", here " + ours;
  };
  compare("", std::to_string(profile.ranks) + " ranks", std::to_string(here.ranks) + " ranks");
  compare("NCCL ", profile.nccl, here.nccl);
  compare("driver ", profile.driver, here.driver);
  compare("GPUs ", listed(profile.gpus), listed(here.gpus));
  compare("links ", listed(profile.links), listed(here.links));
  compare("", listed(profile.settings), listed(here.settings));
  return text;
}

bool any_gpus_alike(const Fingerprint& here) {
  if (here.ranks == here.gpus.size()) return true;
  const auto all_equal = [](const std::vector<std::string>& words) {
    return std::adjacent_find(words.begin(), words.end(), std::not_equal_to<>()) == words.end();
  };
  return here.ranks < here.gpus.size() && all_equal(here.gpus) && all_equal(here.links);
}

std::string key_of(const Fingerprint& fingerprint) {
  Hash hash;
  hash.add(std::to_string(fingerprint.ranks));
  hash.add(fingerprint.nccl);
  hash.add(fingerprint.driver);
  for (const std::string& name : fingerprint.gpus) hash.add(name);
  hash.add("");
  for (const std::string& link : fingerprint.links) hash.add(link);
  hash.add("");
  for (const auto& [name, value] : fingerprint.settings) hash.add(name + "=" + value);
  return hash.text();
}

}  // namespace shunt::tuner
