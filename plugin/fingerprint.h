// What a profile is valid for. Pure: machine.h finds the facts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shunt::tuner {

struct Fingerprint {
  std::vector<std::string> gpus;  // names of all GPUs of the machine, in the order of their bus ids
  // How each pair is joined, pairs in the order 0-1, 0-2, ..., 1-2, ...: "NV18", "PIX", "SYS p2p".
  std::vector<std::string> links;
  std::string driver;  // "580.95.05"
  std::string nccl;    // "2.28.9"
  uint32_t ranks = 0;
  std::map<std::string, std::string> settings;  // NCCL_* variables that change what NCCL can choose
  bool operator==(const Fingerprint&) const = default;
};

// Names of the variables in Fingerprint::settings.
const std::vector<std::string>& relevant_settings();

// Of `get`, which is getenv or like it. NCCL puts its configuration files into the environment when
// it first makes a communicator: look after that.
std::map<std::string, std::string> settings_of(const char* (*get)(const char*));

// What differs, in words; empty: nothing. "driver 570.1, here 580.95.05"
std::string difference(const Fingerprint& profile, const Fingerprint& here);

// True if every choice of `ranks` GPUs of this machine is joined alike. Which GPUs a communicator
// uses is not told to a plugin, and each rank knows only its own: deciding by that would let ranks
// decide differently.
bool any_gpus_alike(const Fingerprint& here);

// 16 hexadecimal digits, equal for equal fingerprints: names the file in the cache.
std::string key_of(const Fingerprint& fingerprint);

}  // namespace shunt::tuner
