#include "shim/engine/process_settings.h"

#include <unistd.h>

#include <cstdlib>

#include "shim/engine/log.h"

namespace shunt {
namespace {

Settings read() {
  const auto get = [](const char* name) -> const char* { return std::getenv(name); };
  ParsedSettings parsed = parse_settings(get);
  log_configure(parsed.settings.log_level, parsed.settings.log_file);
  for (const std::string& line : parsed.errors) log_error("%s", line.c_str());
  for (const std::string& line : unknown_settings(environ)) log_warning("%s", line.c_str());
  return parsed.settings;
}

}  // namespace

const Settings& process_settings() {
  static const auto& settings = *new Settings(read());
  return settings;
}

bool p2p_disabled_now() {
  return parse_settings([](const char* name) -> const char* { return std::getenv(name); })
      .settings.p2p_disabled;
}

}  // namespace shunt
