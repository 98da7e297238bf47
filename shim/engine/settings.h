// The environment variables that the library reads. Pure: no getenv here, no output, nothing
// shared.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/engine/log.h"

namespace shunt {

enum class Enable { automatic, on, off };
enum class PlacementChoice { automatic, push, pull, host };

inline constexpr uint64_t kMaxCap = uint64_t{16} << 20;  // bytes
inline constexpr double kReportSeconds = 60;  // a longer wait is reported; see timeout_seconds
inline constexpr uint64_t kMaxVerify = 1000000000;
inline constexpr uint64_t kMaxTimeoutSeconds = 7 * 24 * 3600;

struct Settings {
  Enable enable = Enable::automatic;
  std::optional<uint64_t> cap;  // bytes; 0: nothing is shunted; unset: measured, or by rank count
  bool cap_measured = true;     // then cap is unset
  PlacementChoice placement = PlacementChoice::automatic;
  LogLevel log_level = LogLevel::info;
  std::string log_file;                   // for log_configure; empty: stderr
  std::optional<double> timeout_seconds;  // a longer wait traps; unset: waits for ever
  uint32_t verify = 0;  // one of so many eager calls is compared with NCCL's result; 0: none
  int dump_signal = 0;  // has the last calls logged; 0: none
  bool dlsym = true;
  std::string nccl;     // empty: found in the process
  std::string profile;  // for the tuner plugin, which reads it itself (plugin/profile_place.h)
  bool stats = false;
  bool p2p_disabled = false;  // NCCL_P2P_DISABLE
};

struct ParsedSettings {
  Settings settings;
  std::vector<std::string>
      errors;  // one printable line for each malformed variable, which has its default
};

// `get` is getenv or like it. NCCL puts what its configuration files say into the environment when
// it first makes a communicator: parse after that, or NCCL_P2P_DISABLE of /etc/nccl.conf is missed.
ParsedSettings parse_settings(const std::function<const char*(const char*)>& get);

// One line for each SHUNT_* name in the environment (as in environ(7)) that is no setting.
std::vector<std::string> unknown_settings(const char* const* environment);

struct SettingInfo {
  const char* name;
  const char* kind;     // "a size": for error lines and the table
  const char* allowed;  // as error lines and the table say it
  const char* default_text;
  const char* doc;
};
std::span<const SettingInfo> setting_table();

// The table of README.md.
std::string settings_markdown();

// In double quotes, printable ASCII only, cut off after about 80 characters.
std::string quoted(std::string_view text);

}  // namespace shunt
