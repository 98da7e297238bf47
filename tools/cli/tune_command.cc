#include "tools/cli/tune_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "plugin/profile_file.h"
#include "plugin/profile_json.h"
#include "plugin/profile_place.h"
#include "tools/bench/json_report.h"
#include "tools/cli/preload.h"
#include "tools/cli/progress.h"
#include "tools/tune/caps.h"
#include "tools/tune/report.h"
#include "tools/tune/session.h"

namespace shunt::cli {
namespace {

using tuner::Profile;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* get(const char* name) { return std::getenv(name); }

Profile read(const std::string& path) {
  try {
    const auto text = tuner::read_profile_file(path);
    if (!text) throw std::runtime_error("there is no such file");
    return tuner::parse_profile(*text);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + ": " + error.what());
  }
}

void check(const TuneRequest& request) {
  // NCCL would offer these only, and a profile is for all.
  for (const char* name : {"NCCL_ALGO", "NCCL_PROTO"}) {
    if (get(name) != nullptr) throw std::runtime_error(std::string("unset ") + name + " first");
  }
  if (request.plan.ranks < 2) throw std::runtime_error("tune takes two ranks or more");
  if (request.plan.first < 8 || request.plan.first > request.plan.last) {
    throw std::runtime_error("sizes must rise from 8 bytes or more");
  }
  if (request.output.empty() && tuner::cache_folder(get).empty()) {
    throw std::runtime_error("no cache folder (XDG_CACHE_HOME, HOME): name a file with --output");
  }
}

bench::Job job_of(const TuneRequest& request) {
  bench::Job job;
  job.options.ranks = request.plan.ranks;
  job.options.devices = request.devices;
  job.options.sizes = {{request.plan.last, false}};  // tells the workers how much memory to take
  validate(job.options);
  job.worker = find_tune_worker();
  job.timeout_s = static_cast<uint32_t>(request.plan.seconds) + 120;
  // NCCL must find the worker's own tuner. A preloaded library stays (it may be another NCCL), and
  // nccl-shunt among them has nothing to do: only NCCL's own functions are called.
  job.environment = {"NCCL_TUNER_PLUGIN=STATIC_PLUGIN", "SHUNT_PROFILE=off", "SHUNT_ENABLE=off"};
  return job;
}

Profile finished(const TuneRequest& request, const tuner::Fingerprint& machine,
                 const std::vector<tune::Point>& points) {
  Profile profile = tune::profile_of(machine, points);
  profile.unsafe_words = request.unsafe_words;
  profile.made = nlohmann::ordered_json{{"tool", "nccl-shunt tune"},
                                        {"commit", request.commit},
                                        {"date", bench::utc_now()},
                                        {"seconds", request.plan.seconds}}
                     .dump();
  return profile;
}

// Without caps a profile is as good as it was; the library then measures.
std::vector<tuner::ShuntCap> caps_of(const TuneRequest& request, const Profile& profile,
                                     const std::string& path, ProgressBar& bar) {
  const auto note = [&](const std::string& text) {
    bar.note("nccl-shunt tune: no cap of " + text + "\n");
  };
  try {
    trial::Request trial;
    trial.ranks = request.plan.ranks;
    trial.devices = request.devices;
    trial.worker = find_worker();
    trial.ld_preload = prepended(find_library(), get("LD_PRELOAD"));
    trial.sizes = {{8, false}};  // to see it work is not this command's task
    bar.show(1, "the library's own cap");
    const auto disabled = profile.machine.settings.find("NCCL_P2P_DISABLE");
    const bool p2p = disabled == profile.machine.settings.end();
    return tune::measure_caps(trial, std::filesystem::absolute(path), p2p, note);
  } catch (const std::exception& error) {
    note(std::string("any placement: ") + error.what());
    return {};
  }
}

int report_problems(const std::vector<tune::Point>& points) {
  int status = 0;
  for (const tune::Point& point : points) {
    for (const std::string& problem : point.problems) {
      std::fprintf(stderr, "nccl-shunt tune: WRONG RESULT, left out: %s %s\n%s\n",
                   name_of(point.collective), std::to_string(point.bytes).c_str(), problem.c_str());
      status = 1;
    }
  }
  return status;
}

}  // namespace

int tune_machine(const TuneRequest& request) {
  check(request);
  const bench::Job job = job_of(request);
  std::vector<tune::Point> points;
  tuner::Fingerprint machine;
  ProgressBar bar;
  const auto search = [&](const tune::Measure& measure, const tune::SessionFacts& facts) {
    machine = facts.machine;
    points = tune::measure_points(
        request.plan, measure, now,
        [&](const tune::Progress& progress) { bar.show(progress.part, progress.what); },
        [&](const tune::Point& point) { bar.line(point_line(point)); });
  };
  bar.line(tune::point_title());
  const std::string failure =
      tune::run_session(job, search, [&](uint32_t worker, const std::string& text) {
        bar.note("[rank " + std::to_string(worker) + "] " + text + "\n");
      });
  if (!failure.empty()) {
    bar.clear();
    throw std::runtime_error("tune: " + failure);
  }
  Profile profile = finished(request, machine, points);
  const std::string path = request.output.empty()
                               ? tuner::cache_file(tuner::cache_folder(get), key_of(machine))
                               : request.output;
  tuner::write_profile_file(path, to_json(profile));
  profile.caps = caps_of(request, profile, path, bar);
  bar.clear();
  tuner::write_profile_file(path, to_json(profile));
  std::printf("\n%s\nwritten to %s\n", tune::show(profile).c_str(), path.c_str());
  if (!any_gpus_alike(machine)) {
    std::printf(
        "The GPUs are not all joined alike, and a plugin cannot tell which of them a job uses:\n"
        "set SHUNT_PROFILE=%s for jobs on these.\n",
        path.c_str());
  }
  return report_problems(points);
}

int show_profile(const std::string& path) {
  std::printf("%s", tune::show(read(path)).c_str());
  return 0;
}

int diff_profiles(const std::string& a, const std::string& b) {
  const std::string text = tune::diff(read(a), read(b));
  std::printf("%s", text.c_str());
  return text.empty() ? 0 : 1;
}

}  // namespace shunt::cli
