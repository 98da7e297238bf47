#include "shim/engine/tuner_offer.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "plugin/profile_place.h"
#include "shim/engine/log.h"

namespace shunt {

void offer_tuner() {
  if (!tuner::environment_is_trusted()) return;
  Dl_info ours{};
  if (dladdr(reinterpret_cast<const void*>(&offer_tuner), &ours) == 0) return;
  const std::string path = ours.dli_fname;
  const auto get = [](const char* name) -> const char* { return std::getenv(name); };
  const std::string plugin = tuner::plugin_to_offer(get, path.substr(0, path.rfind('/')));
  if (plugin.empty()) return;
  // Another thread of the program may be reading the environment just now. So may it when NCCL does
  // the same for its configuration files, a moment later; and only who has made a profile gets
  // here.
  if (setenv("NCCL_TUNER_PLUGIN", plugin.c_str(), 0) != 0) return;
  log_debug("NCCL_TUNER_PLUGIN is set to %s", plugin.c_str());
}

}  // namespace shunt
