#include "tools/doctor/examine.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>

#include "plugin/lookup.h"
#include "shim/engine/settings.h"
#include "tools/bench/text.h"
#include "tools/tune/report.h"

namespace shunt::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string mib(uint64_t bytes) {
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiB);
}

std::string limit_text(const std::optional<uint64_t>& bytes) {
  return !bytes ? "unlimited" : *bytes < kMiB ? fmt::format("{} KiB", *bytes >> 10) : mib(*bytes);
}

Json or_null(const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(nullptr); }

// How the driver's GPUs a and b, numbered as this process sees them, are joined; NVML knows all of
// the machine's.
std::optional<size_t> pair_of(const tuner::MachineDetails& details, const std::string& a,
                              const std::string& b) {
  size_t pair = 0;
  for (size_t i = 0; i < details.bus_ids.size(); ++i) {
    for (size_t j = i + 1; j < details.bus_ids.size(); ++j, ++pair) {
      const bool same = details.bus_ids[i] == a && details.bus_ids[j] == b;
      if (same || (details.bus_ids[i] == b && details.bus_ids[j] == a)) return pair;
    }
  }
  return {};
}

void examine_pairs(Report& report, const Driver& driver, const Machine& machine) {
  std::vector<std::pair<std::string, std::string>> alike;  // what is said of pairs, and the pairs
  for (size_t a = 0; a < driver.gpus.size(); ++a) {
    for (size_t b = a + 1; b < driver.gpus.size(); ++b) {
      const auto pair =
          machine.details ? pair_of(*machine.details, driver.gpus[a].bus_id, driver.gpus[b].bus_id)
                          : std::nullopt;
      std::string link = pair ? machine.details->facts.links[*pair] : "unknown";
      link = link.substr(0, link.find(' '));  // what follows is said by the driver here
      const bool access = driver.peer_access[a][b] && driver.peer_access[b][a];
      const std::string why = pair ? machine.details->no_p2p[*pair] : "";
      std::string text =
          fmt::format("link {}, the driver {} peer access", link, access ? "offers" : "offers no");
      if (!access && !why.empty()) text += " (" + why + ")";
      auto found = std::ranges::find(alike, text, &std::pair<std::string, std::string>::first);
      if (found == alike.end()) found = alike.insert(alike.end(), {text, ""});
      found->second += fmt::format(" {}-{}", a, b);
      report.data["pairs"].push_back(
          {{"gpus", {a, b}}, {"link", link}, {"peer_access", access}, {"why_not", why}});
    }
  }
  for (const auto& [text, pairs] : alike) report.fine(text + ":" + pairs);
}

void examine_gpu(Report& report, size_t number, const VisibleGpu& gpu, bool iommu) {
  const PciPlace place = read_pci_place(gpu.bus_id);
  std::string text = fmt::format("GPU {}: {}, {}", number, gpu.name, gpu.bus_id);
  if (place.numa_node >= 0) text += fmt::format(", NUMA node {}", place.numa_node);
  if (!place.iommu_domain.empty()) text += ", IOMMU domain " + place.iommu_domain;
  report.fine(text);
  report.data["gpus"].push_back({{"name", gpu.name},
                                 {"pci", gpu.bus_id},
                                 {"numa_node", place.numa_node},
                                 {"iommu_domain", place.iommu_domain},
                                 {"acs_redirects_at", place.acs},
                                 {"acs_told", place.acs_told}});
  if (iommu && place.iommu_domain.starts_with("DMA")) {
    report.note(fmt::format(
        "GPU {}: the IOMMU translates what it sends; where P2P fails, boot with iommu=pt", number));
  }
  if (!place.acs.empty()) {
    report.note(
        fmt::format("GPU {}: ACS sends P2P up to the root complex at {}; where P2P is slow or "
                    "fails, disable it "
                    "there",
                    number, bench::join(place.acs, ", ")));
  } else if (!place.acs_told) {
    report.fine(
        fmt::format("  (whether ACS redirects P2P of GPU {} is shown to root only)", number));
  }
}

}  // namespace

Machine read_machine() {
  try {
    return {tuner::machine_details(), ""};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  }
}

void examine_versions(Report& report, const Versions& versions, const Driver& driver,
                      const Machine& machine, const Nccl& nccl, const Host& host) {
  report.section("Versions");
  report.fine(fmt::format("nccl-shunt {}, commit {}, {}", versions.ours, versions.commit,
                          versions.library));
  const std::string version = machine.details ? machine.details->facts.driver : "";
  if (driver.error.empty()) {
    report.fine(
        fmt::format("driver {}, CUDA {}.{}, {}", version.empty() ? "of unknown version" : version,
                    driver.cuda_version / 1000, driver.cuda_version % 1000 / 10, driver.file));
  } else if (driver.missing && host.kernel_driver.empty()) {
    report.note("no NVIDIA driver here (" + driver.error + ")");
  } else {
    report.broken("the CUDA driver does not work: " + driver.error +
                  (host.kernel_driver.empty() ? "" : "; the kernel has " + host.kernel_driver));
  }
  if (driver.error.empty() && !machine.details) {
    report.note("NVML does not work, so NVLink cannot be told (" + machine.error +
                "); SHUNT_ENABLE=on shunts all the same");
  }
  if (nccl.error.empty()) {
    report.fine(fmt::format("NCCL {}, {}", nccl.version, nccl.file));
  } else {
    report.note("no NCCL on the library path; a framework may bring its own (" + nccl.error + ")");
  }
  report.data["versions"] = {{"nccl_shunt", versions.ours},
                             {"commit", versions.commit},
                             {"library", versions.library},
                             {"driver", version},
                             {"driver_error", driver.error},
                             {"cuda", driver.cuda_version},
                             {"kernel_driver", host.kernel_driver},
                             {"nccl", nccl.version},
                             {"nccl_file", nccl.file},
                             {"nccl_error", nccl.error}};
}

void examine_gpus(Report& report, const Driver& driver, const Machine& machine, const Host& host) {
  report.section("GPUs");
  report.data["gpus"] = Json::array();
  report.data["pairs"] = Json::array();
  if (driver.gpus.empty()) {
    report.note("no GPU is visible to this process");
    if (machine.details && !machine.details->facts.gpus.empty()) {
      report.note(fmt::format("NVML knows {}: see CUDA_VISIBLE_DEVICES",
                              machine.details->facts.gpus.size()));
    }
    return;
  }
  for (size_t i = 0; i < driver.gpus.size(); ++i)
    examine_gpu(report, i, driver.gpus[i], host.iommu);
  examine_pairs(report, driver, machine);
}

void examine_host(Report& report, const Host& host) {
  report.section("Machine");
  report.fine(host.container.empty() ? "no sign of a container"
                                     : "a container: " + bench::join(host.container, ", "));
  const auto whose = [](bool first) { return first ? "the machine's" : "one of its own"; };
  report.fine(fmt::format("PID namespace {} ({}), IPC namespace {} ({})", host.pid_namespace,
                          whose(host.host_pid_namespace), host.ipc_namespace,
                          whose(host.host_ipc_namespace)));
  if (!host.host_pid_namespace || !host.host_ipc_namespace) {
    report.note(
        "ranks in different containers must share both namespaces (--pid=host --ipc=host, or one "
        "pod)");
  }
  report.fine(fmt::format("/dev/shm {}, {} free (NCCL's; this library does not use it)",
                          mib(host.shm_bytes), mib(host.shm_free_bytes)));
  report.fine(fmt::format("locked memory {}, open files {}", limit_text(host.memlock_bytes),
                          host.open_files ? std::to_string(*host.open_files) : "unlimited"));
  report.fine(host.iommu ? "an IOMMU is at work" : "no IOMMU at work");
  for (const std::string& file : host.nccl_files)
    report.note("NCCL also takes settings from " + file);
  report.data["machine"] = {
      {"container", host.container},
      {"pid_namespace", host.pid_namespace},
      {"ipc_namespace", host.ipc_namespace},
      {"namespaces_of_the_machine", host.host_pid_namespace && host.host_ipc_namespace},
      {"shm_bytes", host.shm_bytes},
      {"shm_free_bytes", host.shm_free_bytes},
      {"memlock_bytes", or_null(host.memlock_bytes)},
      {"open_files", or_null(host.open_files)},
      {"iommu", host.iommu},
      {"nccl_files", host.nccl_files}};
}

void examine_settings(Report& report, const char* const* environment) {
  report.section("Settings");
  const auto get = [&](const char* name) -> const char* {
    const std::string head = std::string(name) + "=";
    for (const char* const* entry = environment; *entry != nullptr; ++entry) {
      if (std::string_view(*entry).starts_with(head)) return *entry + head.size();
    }
    return nullptr;
  };
  report.data["settings"] = Json::object();
  std::vector<std::string> set;
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const char* prefix : {"SHUNT_", "NCCL_", "CUDA_", "LD_PRELOAD="}) {
      if (text.starts_with(prefix)) set.emplace_back(text);
    }
  }
  std::ranges::sort(set);
  for (const std::string& text : set) {
    const size_t equals = text.find('=');
    report.fine(text.substr(0, equals) + "=" + shunt::quoted(text.substr(equals + 1)));
    report.data["settings"][text.substr(0, equals)] = text.substr(equals + 1);
  }
  if (set.empty()) report.fine("none: all defaults");
  for (const std::string& line : parse_settings(get).errors) report.broken(line);
  for (const std::string& line : unknown_settings(environment)) report.broken(line);
}

void examine_preload(Report& report, const std::string& library, const std::string& trouble) {
  report.section("Preloading");
  report.data["preload"] = {{"library", library}, {"trouble", trouble}};
  if (trouble.empty()) {
    report.fine("works: LD_PRELOAD=" + library);
  } else {
    report.broken("preloading does not work: " + trouble);
  }
}

void examine_profile(Report& report, const tuner::GetEnv& get, const Machine& machine,
                     uint32_t ranks, const std::string& nccl) {
  report.section("Profile");
  Json& data = report.data["profile"] = Json::object();
  if (!machine.details || nccl.empty()) {
    report.fine("not looked for: " +
                (machine.details ? std::string("no NCCL is known") : machine.error));
    return;
  }
  tuner::Fingerprint here = machine.details->facts;
  here.ranks = ranks;
  here.nccl = nccl;
  here.settings =
      tuner::settings_of([](const char* name) -> const char* { return std::getenv(name); });
  const tuner::Found found = tuner::find_profile(get, here);
  data = {{"line", found.line}, {"fits", found.profile != nullptr}};
  if (found.error) {
    report.broken(found.line);
  } else if (!found.profile) {
    report.fine(found.line + "; `nccl-shunt tune` makes one");
  } else {
    report.fine(found.line + " fits");
    for (const tuner::ShuntCap& cap : found.profile->caps) {
      report.fine("cap " + tune::cap_text(cap));
      data["caps"].push_back(
          {{"placement", cap.placement}, {"cap", cap.bytes}, {"two_shot_from", cap.two_shot_from}});
    }
  }
}

}  // namespace shunt::doctor
