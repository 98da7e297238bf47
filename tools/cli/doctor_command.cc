#include "tools/cli/doctor_command.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "tools/bench/json_report.h"
#include "tools/bench/text.h"
#include "tools/cli/preload.h"
#include "tools/doctor/examine.h"

extern "C" char** environ;

namespace shunt::cli {
namespace {

using namespace doctor;

constexpr uint32_t kMostRanks = 16;  // a communicator of more is forwarded

const char* get(const char* name) { return std::getenv(name); }

std::vector<uint32_t> devices_of(const std::string& text) {
  std::vector<uint32_t> devices;
  for (const std::string& part : bench::split(text, ',')) {
    const auto device = static_cast<uint32_t>(bench::parse_number(part));
    if (std::ranges::find(devices, device) != devices.end()) {
      throw std::invalid_argument("--gpus names GPU " + part + " twice");
    }
    devices.push_back(device);
  }
  if (devices.size() < 2) throw std::invalid_argument("--gpus must name two GPUs or more");
  return devices;
}

// All of them, or those that were asked for.
std::vector<uint32_t> chosen_devices(const std::string& gpus, size_t visible) {
  if (gpus.empty()) {
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < std::min<size_t>(visible, kMostRanks); ++i) all.push_back(i);
    return all;
  }
  std::vector<uint32_t> devices = devices_of(gpus);
  for (const uint32_t device : devices) {
    if (device >= visible) {
      throw std::invalid_argument(
          fmt::format("--gpus: there is no GPU {}: the driver shows {}", device, visible));
    }
  }
  return devices;
}

bool p2p_offered(const Driver& driver, const std::vector<uint32_t>& devices) {
  bool all = true;
  for (const uint32_t a : devices) {
    for (const uint32_t b : devices) all = all && (a == b || driver.peer_access[a][b]);
  }
  return all;
}

// What keeps it from starting at all is an outcome too: finding that out is what a doctor is for.
trial::Outcome try_communicator(const std::vector<uint32_t>& devices, uint32_t timeout_s) try {
  trial::Request request;
  request.ranks = static_cast<uint32_t>(devices.size());
  request.devices = devices;
  request.worker = find_worker();
  request.ld_preload = prepended(find_library(), get("LD_PRELOAD"));
  request.environment = {"SHUNT_PROFILE=off"};  // or its cap would be taken, and nothing measured
  request.sizes = trial::sizes_around_caps();
  request.timeout_s = timeout_s;
  return trial::run(request);
} catch (const std::exception& error) {
  trial::Outcome outcome;
  outcome.failures.push_back(error.what());
  return outcome;
}

}  // namespace

struct DoctorCommand::Options {
  bool quick = false;
  std::string gpus, json;
  uint32_t timeout_s = 120;
};

DoctorCommand::DoctorCommand(CLI::App& app, std::string commit)
    : commit_(std::move(commit)), options_(std::make_unique<Options>()) {
  app_ = app.add_subcommand(
      "doctor", "Say what works here, what does not, and what a bug report should tell");
  app_->add_flag("--quick", options_->quick, "Make no communicator");
  app_->add_option("--gpus", options_->gpus, "GPUs of the communicator, e.g. 0,1 (all)");
  app_->add_option("--timeout", options_->timeout_s, "Seconds for the communicator (120)")
      ->check(CLI::Range(1, 36000));
  app_->add_option("--json", options_->json, "Write everything to this file");
}

DoctorCommand::~DoctorCommand() = default;

bool DoctorCommand::parsed() const { return app_->parsed(); }

int DoctorCommand::run() const {
  const Driver driver = open_driver();
  const std::vector<uint32_t> devices = chosen_devices(options_->gpus, driver.gpus.size());
  const auto ranks = static_cast<uint32_t>(devices.size());
  const Host host = read_host();
  const Machine machine = read_machine();
  const Nccl nccl = open_nccl();
  std::string library, trouble;
  try {
    library = find_library();
    trouble = try_preload(library, prepended(library, get("LD_PRELOAD")));
  } catch (const std::exception& error) {
    trouble = error.what();
  }

  Report report([](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  });
  report.data = {{"tool", "nccl-shunt doctor"}, {"date", bench::utc_now()}};
  examine_versions(report, {SHUNT_VERSION, commit_, library}, driver, machine, nccl, host);
  examine_gpus(report, driver, machine, host);
  examine_host(report, host);
  examine_settings(report, environ);
  examine_preload(report, library, trouble);
  std::string nccl_version = nccl.version;
  if (ranks < 2 || options_->quick) {
    report.section("A communicator");
    report.fine(options_->quick ? "not tried: --quick" : "not tried: there are no two GPUs here");
  } else {
    const trial::Outcome outcome = try_communicator(devices, options_->timeout_s);
    examine_trial(report, outcome, {ranks, p2p_offered(driver, devices), get("SHUNT_CAP")});
    if (driver.gpus.size() > devices.size())
      report.fine(fmt::format("({} of {} GPUs)", ranks, driver.gpus.size()));
    if (!outcome.results.facts.nccl_version.empty())
      nccl_version = outcome.results.facts.nccl_version;
  }
  examine_profile(report, get, machine, std::max(ranks, 2u), nccl_version);
  report.end();
  if (!options_->json.empty()) bench::write_file(options_->json, report.json());
  return report.all_broken().empty() ? 0 : 1;
}

}  // namespace shunt::cli
