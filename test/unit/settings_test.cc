#include "shim/engine/settings.h"

#include <cmath>
#include <csignal>
#include <map>
#include <string>

#include "test/catch.h"

namespace shunt {
namespace {

using Environment = std::map<std::string, std::string>;

ParsedSettings parse(const Environment& environment) {
  return parse_settings([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

// What one value of one variable gives where it is well formed.
Settings accepted(const std::string& name, const std::string& value) {
  const ParsedSettings parsed = parse({{name, value}});
  INFO(name << "=" << value);
  CHECK(parsed.errors == std::vector<std::string>{});
  return parsed.settings;
}

// The one error line of a malformed value.
std::string refused(const std::string& name, const std::string& value) {
  const ParsedSettings parsed = parse({{name, value}});
  INFO(name << "=" << value);
  REQUIRE(parsed.errors.size() == 1);
  CHECK(parsed.errors[0].starts_with(name + "="));
  return parsed.errors[0];
}

const char* const kOff[] = {"0", "off", "OFF", "false", "False", "no", "No", ""};
const char* const kOn[] = {"1", "on", "ON", "true", "True", "yes", "YES"};

TEST_CASE("an empty environment gives the defaults") {
  const ParsedSettings parsed = parse({});
  CHECK(parsed.errors.empty());
  CHECK(parsed.settings.enable == Enable::automatic);
  CHECK(parsed.settings.cap == std::nullopt);
  CHECK(parsed.settings.cap_measured);
  CHECK(parsed.settings.log_level == LogLevel::info);
  CHECK(parsed.settings.log_file == "");
  CHECK(parsed.settings.timeout_seconds == std::nullopt);
  CHECK(parsed.settings.verify == 0);
  CHECK(parsed.settings.dlsym);
  CHECK(parsed.settings.nccl == "");
  CHECK(parsed.settings.profile == "");
  CHECK_FALSE(parsed.settings.stats);
  CHECK_FALSE(parsed.settings.p2p_disabled);
}

TEST_CASE("0, off, false, no and empty mean off for every variable") {
  for (const std::string value : kOff) {
    CHECK(accepted("SHUNT_ENABLE", value).enable == Enable::off);
    CHECK(accepted("SHUNT_CAP", value).cap == uint64_t{0});
    CHECK(accepted("SHUNT_LOG", value).log_level == LogLevel::off);
    CHECK(accepted("SHUNT_LOG_FILE", value).log_file == "");
    CHECK(accepted("SHUNT_TIMEOUT", value).timeout_seconds == std::nullopt);
    CHECK(accepted("SHUNT_VERIFY", value).verify == 0);
    CHECK(accepted("SHUNT_DUMP_SIGNAL", value).dump_signal == 0);
    CHECK_FALSE(accepted("SHUNT_DLSYM", value).dlsym);
    CHECK(accepted("SHUNT_NCCL", value).nccl == "");
    CHECK_FALSE(accepted("SHUNT_STATS", value).stats);
  }
}

TEST_CASE("1, on, true and yes mean on for every switch") {
  for (const std::string value : kOn) {
    CHECK(accepted("SHUNT_ENABLE", value).enable == Enable::on);
    CHECK(accepted("SHUNT_DLSYM", value).dlsym);
    CHECK(accepted("SHUNT_STATS", value).stats);
  }
  for (const std::string value : {"2", "yess", "o", " on", "on ", "1.0", "-1", "enable"}) {
    refused("SHUNT_ENABLE", value);
    refused("SHUNT_DLSYM", value);
    refused("SHUNT_STATS", value);
  }
}

TEST_CASE("SHUNT_ENABLE") {
  CHECK(accepted("SHUNT_ENABLE", "auto").enable == Enable::automatic);
  CHECK(accepted("SHUNT_ENABLE", "Auto").enable == Enable::automatic);
  refused("SHUNT_ENABLE", "automatic");
}

TEST_CASE("SHUNT_CAP takes bytes, K and M up to 16M") {
  const std::pair<const char*, uint64_t> kGood[] = {{"1", 1},
                                                    {"16", 16},
                                                    {"4096", 4096},
                                                    {"64K", 65536},
                                                    {"64k", 65536},
                                                    {"1M", 1048576},
                                                    {"1m", 1048576},
                                                    {"16M", kMaxCap},
                                                    {"16384K", kMaxCap},
                                                    {"16777216", kMaxCap},
                                                    {"0K", 0},
                                                    {"00", 0},
                                                    {"0000000000000000000000000512K", 524288}};
  for (const auto& [text, bytes] : kGood) CHECK(accepted("SHUNT_CAP", text).cap == bytes);
  for (const char* text : {"1 MB",
                           "-3",
                           "64Q",
                           "99999999999999999999",
                           "1MB",
                           "1MiB",
                           "1KK",
                           "K",
                           "M",
                           "17M",
                           "16385K",
                           "16777217",
                           "+3",
                           " 1",
                           "1 ",
                           "0x10",
                           "1e3",
                           "1.5M",
                           "18446744073709551617",
                           "18014398509481985K",
                           "on",
                           "auto",
                           "1\n",
                           "-",
                           "٣"}) {
    const std::string line = refused("SHUNT_CAP", text);
    CHECK_THAT(line, ContainsSubstring("16M"));
    CHECK_THAT(line, ContainsSubstring("using the default: measure"));
    CHECK(parse({{"SHUNT_CAP", text}}).settings.cap == std::nullopt);
  }
}

TEST_CASE("SHUNT_LOG") {
  CHECK(accepted("SHUNT_LOG", "error").log_level == LogLevel::error);
  CHECK(accepted("SHUNT_LOG", "WARNING").log_level == LogLevel::warning);
  CHECK(accepted("SHUNT_LOG", "info").log_level == LogLevel::info);
  CHECK(accepted("SHUNT_LOG", "Debug").log_level == LogLevel::debug);
  for (const char* text : {"trace", "1", "warnings", "err", "info "}) refused("SHUNT_LOG", text);
}

TEST_CASE("SHUNT_LOG_FILE and SHUNT_NCCL are paths") {
  CHECK(accepted("SHUNT_LOG_FILE", "/tmp/a %p-%h-%%.log").log_file == "/tmp/a %p-%h-%%.log");
  CHECK(accepted("SHUNT_LOG_FILE", "%p").log_file == "%p");
  CHECK(accepted("SHUNT_NCCL", "/opt/100%/libnccl.so.2").nccl == "/opt/100%/libnccl.so.2");
  CHECK(accepted("SHUNT_NCCL", "/opt/n\xc3\xa4.so").nccl == "/opt/n\xc3\xa4.so");
  for (const char* text : {"%d", "a%", "%p%x", "%%%"}) refused("SHUNT_LOG_FILE", text);
  for (const char* name : {"SHUNT_LOG_FILE", "SHUNT_NCCL", "SHUNT_PROFILE"}) {
    refused(name, "a\nb");
    refused(name, "\x7f");
    refused(name, std::string(4096, 'a'));
    accepted(name, std::string(4095, 'a'));
  }
}

TEST_CASE("SHUNT_DUMP_SIGNAL takes signals that end nothing else") {
  CHECK(accepted("SHUNT_DUMP_SIGNAL", "USR1").dump_signal == SIGUSR1);
  CHECK(accepted("SHUNT_DUMP_SIGNAL", "sigusr2").dump_signal == SIGUSR2);
  CHECK(accepted("SHUNT_DUMP_SIGNAL", "HUP").dump_signal == SIGHUP);
  CHECK(accepted("SHUNT_DUMP_SIGNAL", "34").dump_signal == 34);
  CHECK(accepted("SHUNT_DUMP_SIGNAL", "64").dump_signal == 64);
  for (const std::string text : {"KILL", "SEGV", "9", "10", "33", "65", "on", "-34", "SIG34"}) {
    refused("SHUNT_DUMP_SIGNAL", text);
  }
}

TEST_CASE("SHUNT_VERIFY takes a number of calls") {
  CHECK(accepted("SHUNT_VERIFY", "1").verify == 1);
  CHECK(accepted("SHUNT_VERIFY", "1000000000").verify == 1000000000);
  for (const std::string text : {"-1", "+1", "1.5", "1000000001", "on", "all", "1K", " 1"}) {
    refused("SHUNT_VERIFY", text);
  }
}

TEST_CASE("SHUNT_TIMEOUT takes positive decimal seconds") {
  const std::pair<const char*, double> kGood[] = {
      {"1", 1},
      {"30", 30},
      {"0.5", 0.5},
      {"2.25", 2.25},
      {"0.001", 0.001},
      {"007", 7},
      {"604800", 604800},
      {"604800.0", 604800},
      {"1.5000000000000000000000000000000000000000", 1.5}};
  for (const auto& [text, seconds] : kGood) {
    const auto timeout = accepted("SHUNT_TIMEOUT", text).timeout_seconds;
    REQUIRE(timeout);
    CHECK(std::abs(*timeout - seconds) <= 1e-12 * seconds);
  }
  CHECK(accepted("SHUNT_TIMEOUT", "0.0").timeout_seconds == std::nullopt);
  for (const char* text :
       {"-1", "1s", "1e3", "inf", "nan", "0x1p3", ".5", "5.", "1,5", "1.2.3", "1.-2", " 1",
        "0.0009", "604801", "604800.1", "99999999999999999999", "on", "."})
    refused("SHUNT_TIMEOUT", text);
}

TEST_CASE("NCCL_P2P_DISABLE is read as NCCL reads it and never complained of") {
  for (const char* text : {"1", " 1", "0x1", "01", "1abc"})
    CHECK(accepted("NCCL_P2P_DISABLE", text).p2p_disabled);
  for (const char* text : {"0", "", "2", "-1", "true", "abc", "10"})
    CHECK_FALSE(accepted("NCCL_P2P_DISABLE", text).p2p_disabled);
}

TEST_CASE("an error line names variable, value, what is allowed and the default") {
  CHECK(accepted("SHUNT_CAP", "Measure").cap_measured);
  for (const char* text : {"64K", "Fixed", "0", ""}) CHECK_FALSE(accepted("SHUNT_CAP", text).cap_measured);
  CHECK(accepted("SHUNT_CAP", "fixed").cap == std::nullopt);
  CHECK(refused("SHUNT_CAP", "1 MB") ==
        "SHUNT_CAP=\"1 MB\" is not a size; allowed: bytes, with K or M for powers of 1024, at most "
        "16M; measure; fixed; "
        "0, off, false, no or empty: nothing is shunted; using the default: measure");
  CHECK_THAT(
      refused("SHUNT_LOG", "lo\"ud\x1b[31m\n\\"),
      ContainsSubstring("=\"lo\\\"ud\\x1b[31m\\x0a\\\\\" is not a log level; allowed: off, error"));
  CHECK(refused("SHUNT_CAP", std::string(100000, '\xff')).size() < 350);
}

TEST_CASE("several malformed variables give a line each and spoil nothing else") {
  const ParsedSettings parsed = parse({{"SHUNT_CAP", "much"},
                                       {"SHUNT_TIMEOUT", "soon"},
                                       {"SHUNT_STATS", "1"},
                                       {"SHUNT_LOG", "debug"},
                                       {"SHUNT_DLSYM", "maybe"}});
  CHECK(parsed.errors.size() == 3);
  CHECK(parsed.settings.cap == std::nullopt);
  CHECK(parsed.settings.dlsym);
  CHECK(parsed.settings.stats);
  CHECK(parsed.settings.log_level == LogLevel::debug);
}

TEST_CASE("every variable of the table is read once, and no other") {
  std::map<std::string, int> reads;
  parse_settings([&](const char* name) -> const char* {
    ++reads[name];
    return nullptr;
  });
  CHECK(reads.size() == setting_table().size());
  for (const SettingInfo& setting : setting_table()) {
    INFO(setting.name);
    CHECK(reads[setting.name] == 1);
  }
}

TEST_CASE("unknown variables are told with the nearest name") {
  const char* const environment[] = {"PATH=/bin",        "SHUNT_CPA=1",   "SHUNT_CAP=1",
                                     "SHUNT_TIMEOUTS=3", "NCCL_CAP=1",    "SHUNT_log=debug",
                                     "SHUNT_",           "SHUNT_LOGFILE", "shunt_cap=1",
                                     "X=SHUNT_FOO=1",    nullptr};
  CHECK(
      unknown_settings(environment) ==
      std::vector<std::string>{"\"SHUNT_CPA\" is not a setting; did you mean SHUNT_CAP?",
                               "\"SHUNT_TIMEOUTS\" is not a setting; did you mean SHUNT_TIMEOUT?",
                               "\"SHUNT_log\" is not a setting; did you mean SHUNT_LOG?",
                               "\"SHUNT_\" is not a setting; did you mean SHUNT_CAP?",
                               "\"SHUNT_LOGFILE\" is not a setting; did you mean SHUNT_LOG_FILE?"});
  // One letter too many is nearer than four wrong ones (SHUNT_DLSYM).
  const char* const inserted[] = {"SHUNT_DNCCL=1", nullptr};
  CHECK(unknown_settings(inserted).at(0).ends_with("did you mean SHUNT_NCCL?"));
  CHECK(unknown_settings(nullptr).empty());
  const std::string hostile = "SHUNT_\x1b\n" + std::string(100000, 'x') + "=1";
  const char* const long_one[] = {hostile.c_str(), nullptr};
  REQUIRE(unknown_settings(long_one).size() == 1);
  CHECK(unknown_settings(long_one)[0].size() < 200);
  CHECK(unknown_settings(long_one)[0].starts_with("\"SHUNT_\\x1b\\x0axxx"));
}

TEST_CASE("the table has a row of four cells for each variable") {
  const std::string table = settings_markdown();
  size_t lines = 0;
  size_t bars = 0;
  for (const char c : table) {
    lines += c == '\n';
    bars += c == '|';
  }
  CHECK(lines == setting_table().size() + 2);
  CHECK(bars == 5 * lines);
  for (const SettingInfo& setting : setting_table())
    CHECK_THAT(table,
               ContainsSubstring(std::string("\n| `") + setting.name + "` | " + setting.allowed));
}

}  // namespace
}  // namespace shunt
