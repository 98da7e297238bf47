// The plugin's inside: finds the profile of a communicator and follows it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "plugin/adapter.h"
#include "plugin/lookup.h"
#include "plugin/machine.h"

namespace shunt::tuner {
namespace {

struct Context {
  std::shared_ptr<const Profile> profile;  // never null
  bool unsafe_allowed = false;
};

const char* get(const char* name) { return std::getenv(name); }

// NCCL prints warnings only if NCCL_DEBUG is set; a profile that cannot be used must be seen.
bool nccl_is_silent() {
  const char* const level = get("NCCL_DEBUG");
  return level == nullptr || *level == '\0' || std::string(level) == "VERSION";
}

void say(abi::Logger log, const Found& found) {
  if (found.error && (log == nullptr || nccl_is_silent())) {
    std::fprintf(stderr, "nccl-shunt[%d] error: %s\n", static_cast<int>(getpid()),
                 found.line.c_str());
  } else if (log != nullptr) {
    log(found.error ? abi::kLogWarn : abi::kLogInfo, abi::kSubsystemInit | abi::kSubsystemTuning,
        "nccl-shunt", __LINE__, "TUNER/nccl-shunt: %s", found.line.c_str());
  }
}

// Looks once in a process: a later communicator of the same ranks must not come to another answer
// than its peers because a file changed between their looks.
class Cache {
 public:
  Found find(uint32_t ranks, const std::string& nccl) {
    const std::lock_guard lock(mutex_);
    if (!machine_) machine_ = std::make_unique<Fingerprint>(machine_facts());
    Fingerprint here = *machine_;
    here.ranks = ranks;
    here.nccl = nccl;
    here.settings = settings_of(&get);
    const std::string key = key_of(here);
    const auto known = found_.find(key);
    return known != found_.end() ? known->second : found_[key] = find_profile(get, here);
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Fingerprint> machine_;
  std::map<std::string, Found> found_;
};

Found find(const CommunicatorFacts& facts) {
  static Cache cache;
  if (facts.nodes != 1) return {nullptr, "several machines: NCCL's own choice", false};
  if (facts.ranks < 2 || facts.ranks > 1024) return {nullptr, "NCCL's own choice", false};
  // Before NVML is asked: most processes have no profile.
  if (profile_setting(get).off) return {nullptr, "no profile: SHUNT_PROFILE is off", false};
  const std::string nccl = nccl_version_at(reinterpret_cast<const void*>(facts.log));
  if (nccl.empty()) return {nullptr, "NCCL's version cannot be told: its own choice", false};
  try {
    return cache.find(static_cast<uint32_t>(facts.ranks), nccl);
  } catch (const std::exception& error) {
    return {nullptr, std::string("the machine cannot be told: ") + error.what(), false};
  }
}

}  // namespace

void* open_communicator(const CommunicatorFacts& facts) noexcept {
  try {
    const Found found = find(facts);
    say(facts.log, found);
    if (!found.profile) return nullptr;
    // A user who names protocols has ruled others out; the table looks the same then.
    const bool named = get("NCCL_PROTO") != nullptr || get("NCCL_ALGO") != nullptr;
    const bool unsafe = !found.profile->unsafe_words.empty() && !named;
    if (unsafe) {
      say(facts.log, {nullptr,
                      "LL128 may be used where NCCL rules it out, on the word of the profile's "
                      "maker: " +
                          found.profile->unsafe_words,
                      false});
    }
    return new Context{found.profile, unsafe};
  } catch (const std::exception&) {  // out of memory: NCCL's own choice
    return nullptr;
  }
}

Wish ask(void* context, const Call& call, CostTable& table) noexcept {
  if (context == nullptr) return {};
  const auto& self = *static_cast<const Context*>(context);
  const Wish wish = choose(*self.profile, call, table, self.unsafe_allowed);
  if (!wish.empty()) table.prefer(wish.algorithm, wish.protocol);
  return wish;
}

void close_communicator(void* context) noexcept { delete static_cast<Context*>(context); }

}  // namespace shunt::tuner
