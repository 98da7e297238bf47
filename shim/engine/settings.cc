#include "shim/engine/settings.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace shunt {
namespace {

constexpr char kPrefix[] = "SHUNT_";

// The one list: error lines, the README's table, and the names that unknown_settings suggests come
// from it.
constexpr SettingInfo kSettings[] = {
    {"SHUNT_ENABLE", "a choice", "auto, on, off (or 1, true, yes, 0, false, no, empty)", "auto",
     "on: also where NVLink joins all GPUs, or cannot be told; "
     "off: every call is forwarded, on all ranks if one rank says so"},
    {"SHUNT_CAP", "a size",
     "bytes, with K or M for powers of 1024, at most 16M; measure; fixed; 0, off, false, no or empty: "
     "nothing is shunted",
     "measure",
     "the largest message that is shunted, in a group the sum of a communicator's; where ranks differ, the smallest "
     "counts; measure: NCCL is timed beside it when a communicator is prepared (up to 1M for 2 ranks, 512K for up to "
     "8, 256K for more); fixed: 128K for 2 ranks, 64K for more"},
    {"SHUNT_PLACEMENT", "a placement", "auto, push, pull, host (or empty: auto)", "auto",
     "where the data lies on its way: in the reader's GPU, in the writer's, or in host memory; "
     "auto: push where P2P works, else host"},
    {"SHUNT_LOG", "a log level", "off, error, warning, info, debug (or 0, false, no, empty: off)",
     "info", "which lines are logged"},
    {"SHUNT_LOG_FILE", "a log file",
     "a path; %p is the process id, %h the host name, %% a percent sign; 0, off, false, no or "
     "empty: stderr",
     "stderr", "where lines are appended"},
    {"SHUNT_TIMEOUT", "a time",
     "seconds from 0.001 to 604800, e.g. 30 or 0.5; 0, off, false, no or empty: unset", "unset",
     "a wait for another rank that takes longer stops the process; unset: it is reported after "
     "60 s and goes on"},
    {"SHUNT_VERIFY", "a number of calls", "1 to 1000000000; 0, off, false, no or empty: off", "off",
     "one of so many eager shunted calls is also run by NCCL and compared, which makes it wait; "
     "a difference beyond rounding is reported, and the communicator forwards from then on; where "
     "ranks differ, the smallest number counts. All ranks must group the same calls"},
    {"SHUNT_DUMP_SIGNAL", "a signal", "HUP, USR1, USR2 or 34 to 64; 0, off, false, no or empty: none", "none",
     "the process logs the last 64 all-reduces of each communicator when it gets this signal; to be "
     "compared between ranks. They are logged with every report of a long wait, too"},
    {"SHUNT_DLSYM", "a switch", "1, on, true, yes, 0, off, false, no, empty", "on",
     "also catch NCCL functions that programs look up with dlsym, as vLLM and SGLang do"},
    {"SHUNT_NCCL", "a path", "a path; 0, off, false, no or empty: unset", "unset",
     "the NCCL library to use where the calling program is linked to none"},
    {"SHUNT_PROFILE", "a path", "a path; 0, off, false, no or empty: no profile",
     "the one of this machine in the user's cache, if there is one",
     "the profile of `nccl-shunt tune` that NCCL's own choices follow, the same on all ranks; the cap is taken from "
     "it and not measured"},
    {"SHUNT_STATS", "a switch", "1, on, true, yes, 0, off, false, no, empty", "off",
     "print the counters of shunted and forwarded calls at exit"},
    {"NCCL_P2P_DISABLE", "a number", "as in NCCL: 1", "0", "1: GPUs do not use each other's memory; data goes through host memory"},
};

// Not toupper, isdigit, isprint: those follow the program's locale.
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_printable(char c) { return c >= 0x20 && c <= 0x7e; }

bool same_word(std::string_view text, std::string_view word) {
  return std::equal(text.begin(), text.end(), word.begin(), word.end(),
                    [](char a, char b) { return upper(a) == upper(b); });
}

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](auto word) { return same_word(text, word); });
}

bool means_off(std::string_view text) { return one_of(text, {"", "0", "off", "false", "no"}); }
bool means_on(std::string_view text) { return one_of(text, {"1", "on", "true", "yes"}); }

// Each parser returns false for a malformed text and then has not touched `out`.

bool parse_switch(std::string_view text, bool& out) {
  if (!means_on(text) && !means_off(text)) return false;
  out = means_on(text);
  return true;
}

bool parse_enable(std::string_view text, Enable& out) {
  bool on = false;
  if (parse_switch(text, on)) {
    out = on ? Enable::on : Enable::off;
    return true;
  }
  if (!same_word(text, "auto")) return false;
  out = Enable::automatic;
  return true;
}

bool parse_placement(std::string_view text, PlacementChoice& out) {
  constexpr std::pair<const char*, PlacementChoice> kChoices[] = {
      {"auto", PlacementChoice::automatic},
      {"", PlacementChoice::automatic},
      {"push", PlacementChoice::push},
      {"pull", PlacementChoice::pull},
      {"host", PlacementChoice::host}};
  for (const auto& [word, choice] : kChoices) {
    if (!same_word(text, word)) continue;
    out = choice;
    return true;
  }
  return false;
}

// Digits up to `limit`, else nothing. No strtoull: it takes "-3" and "+3" and skips spaces.
std::optional<uint64_t> parse_number(std::string_view digits, uint64_t limit) {
  if (digits.empty()) return {};
  uint64_t value = 0;
  for (const char c : digits) {
    if (!is_digit(c)) return {};
    value = value * 10 + static_cast<uint64_t>(c - '0');
    if (value > limit) return {};  // here, before many digits overflow
  }
  return value;
}

bool parse_cap(std::string_view text, Settings& out) {
  const bool measure = same_word(text, "measure");
  if (measure || same_word(text, "fixed") || means_off(text)) {
    out.cap_measured = measure;
    if (means_off(text)) out.cap = 0;
    return true;
  }
  uint64_t unit = 1;
  if (one_of(text.substr(text.size() - 1), {"K"})) unit = 1024;
  if (one_of(text.substr(text.size() - 1), {"M"})) unit = 1024 * 1024;
  if (unit > 1) text.remove_suffix(1);
  const auto number = parse_number(text, kMaxCap / unit);
  if (!number) return false;
  out.cap = *number * unit;
  out.cap_measured = false;
  return true;
}

bool parse_log_level(std::string_view text, LogLevel& out) {
  constexpr std::pair<const char*, LogLevel> kLevels[] = {{"error", LogLevel::error},
                                                          {"warning", LogLevel::warning},
                                                          {"info", LogLevel::info},
                                                          {"debug", LogLevel::debug}};
  if (means_off(text)) {
    out = LogLevel::off;
    return true;
  }
  for (const auto& [word, level] : kLevels) {
    if (!same_word(text, word)) continue;
    out = level;
    return true;
  }
  return false;
}

bool parse_path(std::string_view text, std::string& out) {
  if (means_off(text)) {
    out.clear();
    return true;
  }
  // Bytes above 0x7f stay: a path need not be ASCII.
  const bool control = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (control || text.size() >= PATH_MAX) return false;
  out = text;
  return true;
}

bool parse_log_file(std::string_view text, std::string& out) {
  for (size_t at = text.find('%'); at != std::string_view::npos; at = text.find('%', at + 2)) {
    if (at + 1 == text.size() || !std::strchr("ph%", text[at + 1])) return false;
  }
  return parse_path(text, out);
}

// By hand and not by strtod, which wants the program's decimal point and takes "inf", "nan" and
// "0x1p3".
bool parse_timeout(std::string_view text, std::optional<double>& out) {
  if (means_off(text)) {
    out.reset();
    return true;
  }
  const size_t point = text.find('.');
  const auto seconds = parse_number(text.substr(0, point), kMaxTimeoutSeconds);
  if (!seconds) return false;
  double fraction = 0;
  if (point != std::string_view::npos) {
    const std::string_view digits = text.substr(point + 1);
    if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return false;
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit)
      fraction = (fraction + (*digit - '0')) / 10;
  }
  const double total = static_cast<double>(*seconds) + fraction;
  if (total == 0) {
    out.reset();
    return true;
  }
  if (total < 0.001 || total > static_cast<double>(kMaxTimeoutSeconds)) return false;
  out = total;
  return true;
}

bool parse_signal(std::string_view text, int& out) {
  constexpr std::pair<const char*, int> kSignals[] = {
      {"HUP", SIGHUP},       {"USR1", SIGUSR1},       {"USR2", SIGUSR2},
      {"SIGHUP", SIGHUP},    {"SIGUSR1", SIGUSR1},    {"SIGUSR2", SIGUSR2}};
  if (means_off(text)) {
    out = 0;
    return true;
  }
  for (const auto& [word, number] : kSignals) {
    if (!same_word(text, word)) continue;
    out = number;
    return true;
  }
  // Real-time signals; libc keeps the first two of the kernel's (32, 33) for itself.
  const auto number = parse_number(text, 64);
  if (!number || *number < 34) return false;
  out = static_cast<int>(*number);
  return true;
}

bool parse_verify(std::string_view text, uint32_t& out) {
  if (means_off(text)) {
    out = 0;
    return true;
  }
  const auto number = parse_number(text, kMaxVerify);
  if (number) out = static_cast<uint32_t>(*number);
  return number.has_value();
}

// NCCL's own reading (ncclGetLevel in src/graph/paths.cc): 1 and nothing else; "true" is 0 there.
bool parse_p2p_disable(std::string_view text, bool& out) {
  // text.data() ends with a zero byte: it is the value as getenv gave it.
  out = static_cast<int>(std::strtol(text.data(), nullptr, 0)) == 1;
  return true;
}

std::string error_line(const SettingInfo& setting, std::string_view value) {
  return std::string(setting.name) + "=" + quoted(value) + " is not " + setting.kind +
         "; allowed: " + setting.allowed + "; using the default: " + setting.default_text;
}

// `b` is a name of ours, in capitals.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (upper(a[i]) == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

const char* nearest_name(std::string_view name) {
  const char* nearest = nullptr;
  size_t least = SIZE_MAX;
  for (const SettingInfo& setting : kSettings) {
    if (!std::string_view(setting.name).starts_with(kPrefix)) continue;
    const size_t distance = edit_distance(name, setting.name);
    if (distance < least) {
      nearest = setting.name;
      least = distance;
    }
  }
  return nearest;
}

}  // namespace

ParsedSettings parse_settings(const std::function<const char*(const char*)>& get) {
  ParsedSettings parsed;
  Settings& out = parsed.settings;
  const auto read = [&](std::string_view name, auto parse, auto& field) {
    const auto* setting = std::find_if(std::begin(kSettings), std::end(kSettings),
                                       [&](const SettingInfo& s) { return s.name == name; });
    const char* const value = get(setting->name);
    if (value && !parse(value, field)) parsed.errors.push_back(error_line(*setting, value));
  };
  read("SHUNT_ENABLE", parse_enable, out.enable);
  read("SHUNT_CAP", parse_cap, out);
  read("SHUNT_PLACEMENT", parse_placement, out.placement);
  read("SHUNT_LOG", parse_log_level, out.log_level);
  read("SHUNT_LOG_FILE", parse_log_file, out.log_file);
  read("SHUNT_TIMEOUT", parse_timeout, out.timeout_seconds);
  read("SHUNT_VERIFY", parse_verify, out.verify);
  read("SHUNT_DUMP_SIGNAL", parse_signal, out.dump_signal);
  read("SHUNT_DLSYM", parse_switch, out.dlsym);
  read("SHUNT_NCCL", parse_path, out.nccl);
  read("SHUNT_PROFILE", parse_path, out.profile);
  read("SHUNT_STATS", parse_switch, out.stats);
  read("NCCL_P2P_DISABLE", parse_p2p_disable, out.p2p_disabled);
  return parsed;
}

std::vector<std::string> unknown_settings(const char* const* environment) {
  std::vector<std::string> lines;
  for (; environment && *environment; ++environment) {
    const std::string_view entry(*environment);
    const std::string_view name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix)) continue;
    if (std::any_of(std::begin(kSettings), std::end(kSettings),
                    [&](const SettingInfo& setting) { return setting.name == name; }))
      continue;
    lines.push_back(quoted(name) + " is not a setting; did you mean " +
                    nearest_name(name.substr(0, 80)) + "?");
  }
  return lines;
}

std::span<const SettingInfo> setting_table() { return kSettings; }

std::string settings_markdown() {
  std::string table = "| variable | values | default | what it does |\n| --- | --- | --- | --- |\n";
  for (const SettingInfo& setting : kSettings) {
    table += std::string("| `") + setting.name + "` | " + setting.allowed + " | " +
             setting.default_text + " | " + setting.doc + " |\n";
  }
  return table;
}

std::string quoted(std::string_view text) {
  constexpr size_t kMaxText = 80;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    if (out.size() > kMaxText) return out + "...\"";
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (is_printable(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out + '"';
}

}  // namespace shunt
