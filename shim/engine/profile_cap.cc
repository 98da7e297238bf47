#include "shim/engine/profile_cap.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "plugin/lookup.h"
#include "plugin/machine.h"
#include "shim/engine/log.h"

namespace shunt {
namespace {

const char* get(const char* name) { return std::getenv(name); }

std::shared_ptr<const tuner::Profile> look(uint32_t ranks, int nccl_version) {
  if (!tuner::environment_is_trusted() || !tuner::may_have_profile(get)) return nullptr;
  tuner::Fingerprint here = tuner::machine_facts();
  here.ranks = ranks;
  here.nccl = tuner::nccl_version_text(nccl_version);
  here.settings = tuner::settings_of(&get);
  const tuner::Found found = tuner::find_profile(get, here);
  (found.error ? log_error : log_debug)("%s", found.line.c_str());
  return found.profile;
}

// Threads that prepare communicators of different GPUs at once come here together. Held over NVML and a file of
// this machine, never while waiting for a peer.
std::mutex mutex;

std::shared_ptr<const tuner::Profile> profile_of(uint32_t ranks, int nccl_version) {
  static auto& known = *new std::map<std::pair<uint32_t, int>, std::shared_ptr<const tuner::Profile>>;
  std::lock_guard lock(mutex);
  const auto [entry, fresh] = known.try_emplace({ranks, nccl_version});
  try {
    if (fresh) entry->second = look(ranks, nccl_version);
  } catch (const std::exception& error) {
    log_debug("no profile: the machine cannot be told: %s", error.what());
  }
  return entry->second;
}

}  // namespace

std::optional<Found> cap_of_profile(uint32_t ranks, int nccl_version, Placement placement) noexcept {
  try {
    const auto profile = profile_of(ranks, nccl_version);
    if (profile == nullptr) return {};
    const auto cap = std::find_if(profile->caps.begin(), profile->caps.end(),
                                  [&](const tuner::ShuntCap& c) { return c.placement == name_of(placement); });
    if (cap == profile->caps.end()) return {};
    return Found{cap->bytes, cap->two_shot_from == 0 ? ~0u : static_cast<uint32_t>(cap->two_shot_from)};
  } catch (const std::exception&) {
    return {};  // no memory
  }
}

}  // namespace shunt
