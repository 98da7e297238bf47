#include "tools/bench/shunt_log.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "tools/bench/text.h"

namespace shunt::bench {

namespace {

// The message of a line "nccl-shunt[12] LEVEL: MESSAGE"; empty if it is of another level, or none.
std::string_view message_of(std::string_view line, std::string_view level) {
  const std::string head = "] " + std::string(level) + ": ";
  if (!line.starts_with("nccl-shunt[")) return {};
  const size_t at = line.find(head);
  const bool first = at != std::string_view::npos && line.find(']') == at;
  return first ? line.substr(at + head.size()) : std::string_view{};
}

bool add_verdict(Prepared& prepared, const std::string& message) {
  int end = 0;
  if (std::sscanf(message.c_str(), "communicator %*s of %*u ranks: %n", &end); end == 0)
    return false;
  const std::string what = message.substr(static_cast<size_t>(end));
  if (what.starts_with("off: ")) {
    prepared.on = false;
    prepared.off_reason = what.substr(5);
    return true;
  }
  char placement[16] = {}, source[100] = {};
  unsigned long long cap = 0;
  if (std::sscanf(what.c_str(), "on, %15[a-z], cap %llu bytes (%99[^)])", placement, &cap, source) <
      2)
    return false;
  prepared.on = true;
  prepared.placement = placement;
  prepared.cap = cap;
  prepared.cap_source = source;
  return true;
}

bool add_details(Prepared& prepared, const std::string& message) {
  unsigned long long bytes = 0, slab = 0, host = 0;
  TimedSize time;
  if (std::sscanf(message.c_str(),
                  "communicator %*s %llu bytes: NCCL %lf us, one shot %lf us, two shots %lf us",
                  &bytes, &time.nccl_us, &time.one_shot_us, &time.two_shot_us) == 4) {
    time.bytes = bytes;
    prepared.times.push_back(time);
    return true;
  }
  int end = 0;
  if (std::sscanf(message.c_str(), "communicator %*s %*u lanes of %*u threads, %n", &end); end == 0)
    return false;
  std::string rest = message.substr(static_cast<size_t>(end));
  if (std::sscanf(rest.c_str(), "two shots from %llu bytes", &bytes) == 1)
    prepared.two_shot_from = bytes;
  rest = rest.substr(std::min(rest.size(), rest.find(", ")));
  if (std::sscanf(rest.c_str(), ", %llu bytes a slab, %llu in host memory", &slab, &host) != 2)
    return false;
  prepared.slab_bytes = slab;
  prepared.host_bytes = host;
  const size_t at = rest.find("prepared in ");
  if (at != std::string::npos)
    std::sscanf(rest.c_str() + at, "prepared in %lf ms", &prepared.prepared_ms);
  return true;
}

}  // namespace

bool Prepared::add(std::string_view line) {
  for (const char* level : {"warning", "error"}) {
    const std::string_view message = message_of(line, level);
    if (message.empty()) continue;
    troubles.emplace_back(message);
    add_verdict(*this, std::string(message));
    return true;
  }
  if (const auto message = message_of(line, "info"); !message.empty())
    return add_verdict(*this, std::string(message));
  if (const auto message = message_of(line, "debug"); !message.empty())
    return add_details(*this, std::string(message));
  return false;
}

std::optional<Counters> parse_stats(std::string_view line) {
  bool seen = false;
  Counters counters;
  for (std::string word : split(line, ' ')) {
    if (word == "stats" || word == "stats:") seen = true;
    while (word.ends_with(',') || word.ends_with(';')) word.pop_back();
    const size_t equals = word.find('=');
    if (!seen || equals == std::string::npos) continue;
    try {
      counters[word.substr(0, equals)] += parse_number(std::string_view(word).substr(equals + 1));
    } catch (const std::invalid_argument&) {  // not a counter
    }
  }
  if (counters.empty()) return std::nullopt;
  return counters;
}

}  // namespace shunt::bench
