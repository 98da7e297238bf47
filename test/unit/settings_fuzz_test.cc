// Random values, the seeds fixed: whatever the environment holds, parsing ends, gives settings in
// range, and takes exactly what regular expressions written apart from the parser take.
#include <cmath>
#include <map>
#include <random>
#include <regex>
#include <string>

#include "shim/engine/settings.h"
#include "test/catch.h"

namespace shunt {
namespace {

using Random = std::mt19937_64;
using Environment = std::map<std::string, std::string>;

size_t below(Random& random, size_t limit) { return random() % limit; }

// Well-formed values, pieces of them, and noise: pure noise would hardly ever be accepted.
std::string random_value(Random& random) {
  static const std::string kSeeds[] = {"",        "0",        "off",
                                       "false",   "no",       "on",
                                       "1",       "true",     "yes",
                                       "auto",    "info",     "debug",
                                       "error",   "warning",  "64K",
                                       "16M",     "1m",       "17M",
                                       "0.5",     "30",       "%p",
                                       "%h",      "/a/%%",    "604800",
                                       "1048576", "16777216", "99999999999999999999",
                                       "-3",      "1 MB",     "64Q"};
  static const std::string kBytes = "0123456789.kKmM%ph-+ eExX\n\x01\x7f\x80\xff\"\\/";
  std::string value = kSeeds[below(random, std::size(kSeeds))];
  for (size_t edits = below(random, 4); edits > 0; --edits) {
    const size_t at = below(random, value.size() + 1);
    switch (below(random, 5)) {
      case 0:
        value.insert(at, 1, kBytes[below(random, kBytes.size())]);
        break;
      case 1:
        value.erase(at, 1);
        break;
      case 2:
        value += kSeeds[below(random, std::size(kSeeds))];
        break;
      case 3:
        value.insert(at, 1, static_cast<char>(1 + below(random, 255)));
        break;
      default:
        if (at < value.size()) value[at] = static_cast<char>(value[at] ^ 0x20);
    }
  }
  if (below(random, 200) == 0)
    value.append(below(random, 10000), kBytes[below(random, kBytes.size())]);
  for (char& c : value)
    if (c == '\0') c = '0';
  return value;
}

bool matches(const std::string& value, const char* pattern) {
  return std::regex_match(value, std::regex(pattern, std::regex::icase));
}

bool is_off(const std::string& value) { return matches(value, "|0|off|false|no"); }

bool is_cap(const std::string& value) {
  if (is_off(value)) return true;
  std::smatch parts;
  static const std::regex kSize("0*([0-9]{0,8})([KkMm]?)");
  if (!std::regex_match(value, parts, kSize) || matches(value, "[KM]?")) return false;
  const double number = parts[1].length() ? std::strtod(parts[1].str().c_str(), nullptr) : 0;
  const char unit = parts[2].length() ? static_cast<char>(parts[2].str()[0] | 0x20) : ' ';
  return number * (unit == 'm' ? 1048576 : unit == 'k' ? 1024 : 1) <= 16777216;
}

bool is_timeout(const std::string& value) {
  if (is_off(value)) return true;
  if (!matches(value, "[0-9]+(\\.[0-9]+)?")) return false;
  const double seconds = std::strtod(value.c_str(), nullptr);
  return seconds == 0 || (seconds >= 0.001 && seconds <= 604800);
}

bool is_path(const std::string& value) {
  return value.size() < 4096 && value.find_first_of(
                                    "\x01\x02\x03\x04\x05\x06\x07\b\t\n\v\f\r\x0e\x0f\x10"
                                    "\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e"
                                    "\x1f\x7f") == std::string::npos;
}

bool is_log_file(const std::string& value) {
  for (size_t at = 0; at < value.size(); ++at) {
    if (value[at] != '%') continue;
    if (++at == value.size() || (value[at] != '%' && value[at] != 'p' && value[at] != 'h'))
      return false;
  }
  return is_path(value);
}

bool is_well_formed(const std::string& name, const std::string& value) {
  if (name == "SHUNT_CAP") return is_cap(value);
  if (name == "SHUNT_TIMEOUT") return is_timeout(value);
  if (name == "SHUNT_DUMP_SIGNAL") {
    const bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    return is_off(value) || matches(value, "hup|usr1|usr2|sighup|sigusr1|sigusr2") ||
           (digits && std::stold(value) >= 34 && std::stold(value) <= 64);
  }
  if (name == "SHUNT_VERIFY") {
    const bool digits = value.find_first_not_of("0123456789") == std::string::npos;
    return is_off(value) || (digits && std::stold(value) <= 1e9L);
  }
  if (name == "SHUNT_NCCL" || name == "SHUNT_PROFILE") return is_path(value);
  if (name == "SHUNT_LOG_FILE") return is_log_file(value);
  if (name == "SHUNT_LOG") return is_off(value) || matches(value, "error|warning|info|debug");
  if (name == "NCCL_P2P_DISABLE") return true;
  if (name == "SHUNT_PLACEMENT") return matches(value, "auto|push|pull|host|");
  return is_off(value) || matches(value, "1|on|true|yes") ||
         (name == "SHUNT_ENABLE" && matches(value, "auto"));
}

void check_in_range(const Settings& settings) {
  if (settings.cap) REQUIRE(*settings.cap <= kMaxCap);
  if (settings.timeout_seconds) {
    REQUIRE(std::isfinite(*settings.timeout_seconds));
    REQUIRE(*settings.timeout_seconds >= 0.0009);
    REQUIRE(*settings.timeout_seconds <= 604800);
  }
  REQUIRE(settings.log_level >= LogLevel::off);
  REQUIRE(settings.log_level <= LogLevel::debug);
}

TEST_CASE("random environments") {
  size_t accepted = 0;
  size_t refused = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    Random random(seed);
    Environment environment;
    std::vector<std::string> malformed;
    for (const SettingInfo& setting : setting_table()) {
      const std::string value = random_value(random);
      environment[setting.name] = value;
      if (is_well_formed(setting.name, value)) {
        ++accepted;
      } else {
        malformed.push_back(setting.name);
        ++refused;
      }
    }
    const ParsedSettings parsed = parse_settings(
        [&](const char* name) -> const char* { return environment.at(name).c_str(); });
    check_in_range(parsed.settings);
    std::vector<std::string> complained_of;
    for (const std::string& line : parsed.errors) {
      complained_of.push_back(line.substr(0, line.find('=')));
      REQUIRE(line.size() < 400);
      for (const char c : line) REQUIRE((c >= 0x20 && c <= 0x7e));
    }
    INFO("seed " << seed);
    for (const auto& [name, value] : environment) UNSCOPED_INFO(name << "=" << quoted(value));
    REQUIRE(complained_of == malformed);
  }
  // Both sides are exercised.
  CHECK(accepted > 3000);
  CHECK(refused > 3000);
}

TEST_CASE("random caps have the value that they say") {
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t shift = 10 * below(random, 3);
    const uint64_t number = below(random, kMaxCap >> shift) + 1;
    const char* const kUnits[] = {"", "k", "M"};
    const std::string text = std::to_string(number) + kUnits[shift / 10];
    const auto parsed = parse_settings([&](const char* name) -> const char* {
      return std::string_view(name) == "SHUNT_CAP" ? text.c_str() : nullptr;
    });
    INFO(text);
    REQUIRE(parsed.settings.cap == number << shift);
  }
}

TEST_CASE("random environments of unknown names") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const std::string entries[] = {"SHUNT_" + random_value(random),
                                   "SHUNT_CAP" + random_value(random), random_value(random)};
    const char* const environment[] = {entries[0].c_str(), entries[1].c_str(), entries[2].c_str(),
                                       nullptr};
    for (const std::string& line : unknown_settings(environment)) {
      REQUIRE(line.size() < 250);
      REQUIRE(line.starts_with("\"SHUNT_"));
      for (const char c : line) REQUIRE((c >= 0x20 && c <= 0x7e));
    }
  }
}

}  // namespace
}  // namespace shunt
