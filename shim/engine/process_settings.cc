#include "shim/engine/process_settings.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "shim/engine/fork_safe.h"
#include "shim/engine/log.h"

namespace shunt {
namespace {

// The environment of a set-uid program is its caller's, who must not choose the files that it writes
// or the library that it loads.
bool trusted() { return getauxval(AT_SECURE) == 0; }

const char* get(const char* name) { return trusted() ? std::getenv(name) : nullptr; }

Settings read() {
  ParsedSettings parsed = parse_settings(get);
  log_configure(parsed.settings.log_level, parsed.settings.log_file);
  for (const std::string& line : parsed.errors) log_error("%s", line.c_str());
  if (!trusted()) {
    // Off as by SHUNT_ENABLE, so in the rounds of preparing: the other ranks may not be set-uid.
    parsed.settings.enable = Enable::off;
    log_info("this program runs with more rights than its caller: no setting is read, every call is "
             "forwarded");
    return parsed.settings;
  }
  for (const std::string& line : unknown_settings(environ)) log_warning("%s", line.c_str());
  return parsed.settings;
}

}  // namespace

const Settings& process_settings() {
  static constinit std::atomic<const Settings*> known = nullptr;
  static constinit ForkSafeMutex mutex;
  if (const Settings* settings = known.load(std::memory_order_acquire)) return *settings;
  std::lock_guard lock(mutex);
  const Settings* settings = known.load(std::memory_order_acquire);
  if (settings == nullptr) known.store(settings = new Settings(read()), std::memory_order_release);
  return *settings;
}

bool p2p_disabled_now() {
  return parse_settings(get).settings.p2p_disabled;
}

}  // namespace shunt
