#include "tools/tune/report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/bench/sizes.h"

namespace shunt::tune {
namespace {

using Json = nlohmann::ordered_json;
using bench::bytes_text;
using tuner::Collective;
using tuner::Fingerprint;
using tuner::Profile;
using tuner::Rule;

double rounded(double us) {
  return static_cast<double>(static_cast<int64_t>(us * 1000 + 0.5)) / 1000;
}

template <typename... Values>
std::string line(const char* format, Values... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  return std::string(text) + "\n";
}

std::string machine_text(const Fingerprint& machine) {
  std::string text = line("machine     %u ranks, NCCL %s, driver %s", machine.ranks,
                          machine.nccl.c_str(), machine.driver.c_str());
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    text += line("GPU %-7zu %s", i, machine.gpus[i].c_str());
  }
  size_t pair = 0;
  for (size_t a = 0; a < machine.gpus.size(); ++a) {
    for (size_t b = a + 1; b < machine.gpus.size(); ++b) {
      text += line("link %zu-%-4zu %s", a, b, machine.links.at(pair++).c_str());
    }
  }
  for (const auto& [name, value] : machine.settings) {
    text += line("setting     %s=%s", name.c_str(), value.c_str());
  }
  return text;
}

std::string rule_text(const Rule& rule) {
  std::string text = line("  %10s to %-10s %-20s", bytes_text(rule.from).c_str(),
                          bytes_text(rule.to).c_str(), to_text(rule.wish).c_str());
  text.pop_back();
  if (rule.us > 0 && rule.default_us > 0) {
    text += line(" %10.2f us, NCCL's own choice %10.2f us", rule.us, rule.default_us);
  } else {
    text += "\n";
  }
  return text;
}

std::string caps_diff(const Profile& a, const Profile& b) {
  const auto of = [](const Profile& profile, const std::string& placement) {
    for (const tuner::ShuntCap& cap : profile.caps) {
      if (cap.placement == placement) return cap_text(cap);
    }
    return placement + ": no cap";
  };
  std::string text;
  for (const char* placement : tuner::kShuntPlacements) {
    const std::string ours = of(a, placement), theirs = of(b, placement);
    if (ours != theirs) text += "cap " + ours + "; " + theirs + "\n";
  }
  return text;
}

// The wish for every size at which one of the two profiles changes its mind.
std::string rules_diff(const Profile& a, const Profile& b, Collective collective) {
  std::set<uint64_t> sizes;
  for (const Profile* profile : {&a, &b}) {
    for (const Rule& rule : profile->rules(collective)) {
      sizes.insert(rule.from);
      sizes.insert(rule.to + 1);
    }
  }
  const auto wish_at = [&](const Profile& profile, uint64_t bytes) {
    for (const Rule& rule : profile.rules(collective)) {
      if (rule.from <= bytes && bytes <= rule.to) return to_text(rule.wish);
    }
    return to_text(Wish{});
  };
  std::string text;
  for (auto size = sizes.begin(); size != sizes.end(); ++size) {
    const std::string ours = wish_at(a, *size), theirs = wish_at(b, *size);
    if (ours == theirs) continue;
    const auto next = std::next(size);
    const uint64_t last = next == sizes.end() ? *size : *next - 1;
    text += line("%s %s to %s: %s, %s", name_of(collective), bytes_text(*size).c_str(),
                 bytes_text(last).c_str(), ours.c_str(), theirs.c_str());
  }
  return text;
}

}  // namespace

std::string cap_text(const tuner::ShuntCap& cap) {
  if (cap.bytes == 0) return cap.placement + ": nothing is shunted, NCCL is faster at every size";
  return cap.placement + ": " + bytes_text(cap.bytes) + " are shunted, " +
         (cap.two_shot_from == 0 ? "in one shot"
                                 : "in two shots from " + bytes_text(cap.two_shot_from));
}

std::string measured_json(const std::vector<Point>& points) {
  Json json = Json::object();
  for (const Point& point : points) {
    Json tried = Json::object();
    for (const auto& [wish, us] : point.tried) tried[wish] = rounded(us);
    json[name_of(point.collective)].push_back({{"bytes", point.bytes},
                                               {"default", to_text(point.default_wish)},
                                               {"default_us", rounded(point.default_us)},
                                               {"best", to_text(point.best)},
                                               {"best_us", rounded(point.best_us)},
                                               {"tried", tried}});
  }
  return json.dump();
}

std::string point_title() {
  return line("%-15s %8s  %-18s %10s  %-20s %10s %7s", "", "bytes", "NCCL's choice", "us",
              "profile", "us", "gain");
}

std::string point_line(const Point& point) {
  std::string text =
      line("%-15s %8s  %-18s %10.2f", name_of(point.collective), bytes_text(point.bytes).c_str(),
           to_text(point.default_wish).c_str(), point.default_us);
  if (point.best.empty()) return text;
  text.pop_back();
  return text + line("  %-20s %10.2f %5.0f %%", to_text(point.best).c_str(), point.best_us,
                     100 * (1 - point.best_us / point.default_us));
}

std::string point_table(const std::vector<Point>& points) {
  std::string text = point_title();
  for (const Point& point : points) text += point_line(point);
  return text;
}

std::string show(const Profile& profile) {
  std::string text = machine_text(profile.machine);
  text += line("key         %s", key_of(profile.machine).c_str());
  if (!profile.unsafe_words.empty()) {
    text += line("unsafe      LL128 where NCCL rules it out: %s", profile.unsafe_words.c_str());
  }
  if (!profile.made.empty()) text += "made        " + profile.made + "\n";
  for (const tuner::ShuntCap& cap : profile.caps) text += "cap         " + cap_text(cap) + "\n";
  if (!profile.shunt.empty()) text += "shunt       " + profile.shunt + "\n";
  for (const Collective collective : tuner::kCollectives) {
    text += std::string(name_of(collective)) + "\n";
    for (const Rule& rule : profile.rules(collective)) text += rule_text(rule);
    if (profile.rules(collective).empty()) text += "  NCCL's own choice everywhere\n";
  }
  return text;
}

std::string diff(const Profile& a, const Profile& b) {
  std::string text = difference(a.machine, b.machine);
  if (!text.empty()) text = "machine: " + text + "\n";
  if (a.unsafe_words != b.unsafe_words) {
    text += "unsafe: \"" + a.unsafe_words + "\", \"" + b.unsafe_words + "\"\n";
  }
  text += caps_diff(a, b);
  for (const Collective collective : tuner::kCollectives) text += rules_diff(a, b, collective);
  return text;
}

}  // namespace shunt::tune
