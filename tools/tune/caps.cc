#include "tools/tune/caps.h"

#include <algorithm>

#include "tools/bench/text.h"

namespace shunt::tune {
namespace {

constexpr char kNcclWins[] = "NCCL is faster at every size";

}  // namespace

std::vector<tuner::ShuntCap> measure_caps(const trial::Request& base,
                                          const std::string& profile_path, bool p2p,
                                          const std::function<void(const std::string&)>& on_note) {
  std::vector<tuner::ShuntCap> caps;
  for (const std::string placement : tuner::kShuntPlacements) {
    if (!p2p && placement != "host") continue;
    trial::Request request = base;
    for (const std::string& setting :
         {"SHUNT_PLACEMENT=" + placement, "SHUNT_PROFILE=" + profile_path,
          std::string("SHUNT_ENABLE=on"), std::string("SHUNT_VERIFY"), std::string("SHUNT_DLSYM"),
          std::string("SHUNT_NCCL")}) {
      request.environment.push_back(setting);
    }
    const trial::Outcome outcome = trial::run(request);
    const bench::Prepared& said = outcome.said;
    if (!outcome.failures.empty()) {
      on_note(placement + ": " + bench::join(outcome.failures, "; "));
    } else if (*said.on && said.cap_source == "measured") {
      caps.push_back({placement, said.cap, said.two_shot_from});
    } else if (!*said.on && said.off_reason == kNcclWins) {
      caps.push_back({placement, 0, 0});
    } else {
      on_note(placement + ": " + (*said.on ? "the cap was not measured" : said.off_reason));
    }
  }
  return caps;
}

}  // namespace shunt::tune
