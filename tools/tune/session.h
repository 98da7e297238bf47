// The workers of a tuning run, as something that measures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plugin/fingerprint.h"
#include "tools/bench/launcher.h"
#include "tools/tune/explore.h"

namespace shunt::tune {

struct SessionFacts {
  tuner::Fingerprint machine;
};

// Starts the job and runs `search` in a thread of its own, once every worker is ready. `search` may
// throw. Returns what went wrong, of the job or the search; empty: nothing.
std::string run_session(const bench::Job& job,
                        const std::function<void(const Measure&, const SessionFacts&)>& search,
                        const std::function<void(uint32_t, const std::string&)>& on_line);

// All ranks' answers, in any order, as one.
Outcome together(std::vector<Tried> answers);

}  // namespace shunt::tune
