#include "plugin/profile_json.h"

#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "plugin/profile_guard.h"

namespace shunt::tuner {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "nccl-shunt profile";
constexpr size_t kMaxGpus = 64;
constexpr size_t kMaxRules = 1000;
constexpr size_t kMaxString = 256;
constexpr uint64_t kShuntVersion = 1;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw std::runtime_error(where + ": " + what);
}

// A value and the way to it, for messages: "collectives.all-reduce[3].from".
class Node {
 public:
  Node(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  [[noreturn]] void refuse(const std::string& what) const { tuner::refuse(where_, what); }

  // Refuses members that are not listed: a misspelt one would be passed over in silence.
  const Node& object(std::initializer_list<const char*> members) const {
    if (!json_.is_object()) refuse("must be an object");
    for (const auto& [key, value] : json_.items()) {
      bool known = false;
      for (const char* member : members) known = known || key == member;
      if (!known) refuse("unknown member \"" + printable(key, 40) + "\"");
    }
    return *this;
  }
  bool has(const char* member) const { return json_.contains(member); }
  Node at(const char* member) const {
    if (!has(member)) refuse(std::string("\"") + member + "\" is missing");
    return {json_[member], where_.empty() ? member : where_ + "." + member};
  }
  std::vector<Node> list(size_t most) const {
    if (!json_.is_array()) refuse("must be a list");
    if (json_.size() > most) refuse("more than " + std::to_string(most) + " entries");
    std::vector<Node> nodes;
    for (size_t i = 0; i < json_.size(); ++i) {
      nodes.emplace_back(json_[i], where_ + "[" + std::to_string(i) + "]");
    }
    return nodes;
  }
  uint64_t number(uint64_t least, uint64_t most) const {
    // An integer below zero is another type here, and so is 1.0.
    const bool whole = json_.is_number_unsigned();
    const uint64_t value = whole ? json_.get<uint64_t>() : 0;
    if (whole && value >= least && value <= most) return value;
    refuse("must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  double time() const {
    const double value = json_.is_number() ? json_.get<double>() : -1;
    if (std::isfinite(value) && value >= 0 && value < 1e12) return value;
    refuse("must be a time in microseconds");
  }
  std::string string() const {
    if (!json_.is_string()) refuse("must be a string");
    const auto& text = json_.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxString) {
      refuse("must have 1 to " + std::to_string(kMaxString) + " characters");
    }
    if (printable(text, kMaxString) != text) refuse("must be printable ASCII");
    return text;
  }
  std::vector<std::string> strings(size_t most) const {
    std::vector<std::string> texts;
    for (const Node& node : list(most)) texts.push_back(node.string());
    return texts;
  }
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

Fingerprint machine_of(const Node& node) {
  node.object({"gpus", "links", "driver", "nccl", "ranks", "settings"});
  Fingerprint machine;
  machine.gpus = node.at("gpus").strings(kMaxGpus);
  machine.links = node.at("links").strings(kMaxGpus * (kMaxGpus - 1) / 2);
  const size_t gpus = machine.gpus.size();
  if (machine.links.size() != gpus * (gpus - 1) / 2) {
    node.at("links").refuse("must have one entry for each pair of GPUs");
  }
  machine.driver = node.at("driver").string();
  machine.nccl = node.at("nccl").string();
  machine.ranks = static_cast<uint32_t>(node.at("ranks").number(2, 1024));
  const Node settings = node.at("settings");
  if (!settings.json().is_object()) settings.refuse("must be an object");
  for (const auto& [name, value] : settings.json().items()) {
    bool known = false;
    for (const std::string& relevant : relevant_settings()) known = known || name == relevant;
    if (!known) settings.refuse("unknown member \"" + printable(name, 40) + "\"");
    machine.settings[name] = Node(value, settings.where() + "." + name).string();
  }
  return machine;
}

Rule rule_of(const Node& node) {
  node.object({"from", "to", "algorithm", "protocol", "channels", "us", "default_us"});
  Rule rule;
  rule.from = node.at("from").number(0, kMaxBytes);
  rule.to = node.at("to").number(rule.from, kMaxBytes);
  const std::string algorithm = node.at("algorithm").string();
  const std::string protocol = node.at("protocol").string();
  rule.wish.algorithm = algorithm_of(algorithm);
  rule.wish.protocol = protocol_of(protocol);
  if (rule.wish.algorithm < 0) node.at("algorithm").refuse("\"" + algorithm + "\" is none");
  if (rule.wish.protocol < 0) node.at("protocol").refuse("\"" + protocol + "\" is none");
  if (node.has("channels")) {
    rule.wish.channels = static_cast<int>(node.at("channels").number(1, kMaxChannels));
  }
  if (node.has("us")) rule.us = node.at("us").time();
  if (node.has("default_us")) rule.default_us = node.at("default_us").time();
  return rule;
}

std::vector<Rule> rules_of(const Node& node) {
  std::vector<Rule> rules;
  for (const Node& entry : node.list(kMaxRules)) {
    rules.push_back(rule_of(entry));
    if (rules.size() > 1 && rules.back().from <= rules[rules.size() - 2].to) {
      entry.refuse("must begin after the entry before it ends");
    }
  }
  return rules;
}

ShuntCap cap_of(const Node& node) {
  node.object({"placement", "cap", "two_shot_from"});
  ShuntCap cap;
  cap.placement = node.at("placement").string();
  bool known = false;
  for (const char* placement : kShuntPlacements) known = known || cap.placement == placement;
  if (!known) node.at("placement").refuse("\"" + cap.placement + "\" is none");
  cap.bytes = node.at("cap").number(0, kMaxShuntCap);
  if (node.has("two_shot_from")) {
    cap.two_shot_from = node.at("two_shot_from").number(1, kMaxShuntCap);
  }
  return cap;
}

std::vector<ShuntCap> caps_of(const Node& shunt) {
  shunt.object({"version", "caps"});
  std::vector<ShuntCap> caps;
  if (!shunt.has("caps")) return caps;
  for (const Node& entry : shunt.at("caps").list(std::size(kShuntPlacements))) {
    const ShuntCap cap = cap_of(entry);
    for (const ShuntCap& before : caps) {
      if (before.placement == cap.placement)
        entry.refuse("\"" + cap.placement + "\" appears twice");
    }
    caps.push_back(cap);
  }
  return caps;
}

Json shunt_json(const std::vector<ShuntCap>& caps) {
  Json list = Json::array();
  for (const ShuntCap& cap : caps) {
    Json json = {{"placement", cap.placement}, {"cap", cap.bytes}};
    if (cap.two_shot_from > 0) json["two_shot_from"] = cap.two_shot_from;
    list.push_back(json);
  }
  return {{"version", kShuntVersion}, {"caps", list}};
}

// Kept as text: this version does not look inside.
std::string part_of(const Node& root, const char* member) {
  if (!root.has(member)) return "";
  if (!root.at(member).json().is_object()) root.at(member).refuse("must be an object");
  return root.at(member).json().dump();
}

Json rule_json(const Rule& rule) {
  Json json = {{"from", rule.from},
               {"to", rule.to},
               {"algorithm", algorithm_name(rule.wish.algorithm)},
               {"protocol", protocol_name(rule.wish.protocol)}};
  if (rule.wish.channels > 0) json["channels"] = rule.wish.channels;
  if (rule.us > 0) json["us"] = rule.us;
  if (rule.default_us > 0) json["default_us"] = rule.default_us;
  return json;
}

Profile profile_of(const Json& document) {
  const Node root(document, "");
  root.object(
      {"format", "version", "made", "machine", "unsafe", "collectives", "measured", "shunt"});
  if (root.at("format").string() != kFormat)
    root.at("format").refuse("must be \"nccl-shunt profile\"");
  root.at("version").number(kProfileVersion, kProfileVersion);
  Profile profile;
  profile.machine = machine_of(root.at("machine"));
  if (root.has("unsafe")) profile.unsafe_words = root.at("unsafe").string();
  const Node collectives = root.at("collectives");
  collectives.object({"all-reduce", "all-gather", "reduce-scatter"});
  for (const Collective collective : kCollectives) {
    if (!collectives.has(name_of(collective))) continue;
    profile.rules(collective) = rules_of(collectives.at(name_of(collective)));
  }
  profile.made = part_of(root, "made");
  profile.measured = part_of(root, "measured");
  if (root.has("shunt")) {
    const Node shunt = root.at("shunt");
    if (!shunt.json().is_object()) shunt.refuse("must be an object");
    if (shunt.at("version").number(1, 1'000'000) == kShuntVersion) {
      profile.caps = caps_of(shunt);
    } else {
      profile.shunt = part_of(root, "shunt");
    }
  }
  return profile;
}

}  // namespace

Profile parse_profile(std::string_view text) {
  if (text.size() > kMaxProfileText) {
    throw std::runtime_error("larger than " + std::to_string(kMaxProfileText) + " bytes");
  }
  if (const std::string fault = json_fault(text); !fault.empty()) throw std::runtime_error(fault);
  try {
    return profile_of(Json::parse(text.begin(), text.end()));
  } catch (const Json::exception& error) {  // nothing is known to get here
    throw std::runtime_error(printable(error.what()));
  }
}

std::string to_json(const Profile& profile) {
  const Fingerprint& machine = profile.machine;
  Json json = {{"format", kFormat}, {"version", kProfileVersion}};
  if (!profile.made.empty()) json["made"] = Json::parse(profile.made);
  json["machine"] = {{"gpus", machine.gpus},     {"links", machine.links},
                     {"driver", machine.driver}, {"nccl", machine.nccl},
                     {"ranks", machine.ranks},   {"settings", Json::object()}};
  for (const auto& [name, value] : machine.settings) json["machine"]["settings"][name] = value;
  if (!profile.unsafe_words.empty()) json["unsafe"] = profile.unsafe_words;
  json["collectives"] = Json::object();
  for (const Collective collective : kCollectives) {
    Json rules = Json::array();
    for (const Rule& rule : profile.rules(collective)) rules.push_back(rule_json(rule));
    json["collectives"][name_of(collective)] = rules;
  }
  if (!profile.measured.empty()) json["measured"] = Json::parse(profile.measured);
  if (!profile.shunt.empty()) {
    json["shunt"] = Json::parse(profile.shunt);
  } else if (!profile.caps.empty()) {
    json["shunt"] = shunt_json(profile.caps);
  }
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  parse_profile(text);
  return text;
}

}  // namespace shunt::tuner
