// The parts of `nccl-shunt doctor`: each looks at what it is given, reports it, and says what is
// wrong with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugin/fingerprint.h"
#include "plugin/machine.h"
#include "plugin/profile_place.h"
#include "tools/doctor/host.h"
#include "tools/doctor/report.h"
#include "tools/doctor/software.h"
#include "tools/trial/trial.h"

namespace shunt::doctor {

// NVML's view of the machine, or why there is none.
struct Machine {
  std::optional<tuner::MachineDetails> details;
  std::string error;
};
Machine read_machine();

struct Versions {
  std::string ours, commit, library;
};

void examine_versions(Report& report, const Versions& versions, const Driver& driver,
                      const Machine& machine, const Nccl& nccl, const Host& host);
void examine_gpus(Report& report, const Driver& driver, const Machine& machine, const Host& host);
void examine_host(Report& report, const Host& host);
// Of the environment as in environ(7).
void examine_settings(Report& report, const char* const* environment);
void examine_preload(Report& report, const std::string& library, const std::string& trouble);
// For communicators of `ranks` ranks. `nccl`: a version, "2.28.9".
void examine_profile(Report& report, const tuner::GetEnv& get, const Machine& machine,
                     uint32_t ranks, const std::string& nccl);
struct TrialContext {
  uint32_t ranks = 2;
  bool p2p_offered =
      true;  // the driver offers peer access between all of them: then it has to work
  const char* cap_setting =
      nullptr;  // the user's SHUNT_CAP, null if it is not set; the trial measured all the same
};
void examine_trial(Report& report, const trial::Outcome& outcome, const TrialContext& context);

}  // namespace shunt::doctor
