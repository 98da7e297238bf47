// `nccl-shunt doctor`: its parts with made-up facts, and the command itself on the emulated driver
// and NCCL. What the stand-in for NCCL traces is the witness that what the doctor says is what
// happens.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plugin/profile_json.h"
#include "plugin/test/samples.h"
#include "test/catch.h"
#include "tools/doctor/examine.h"

using namespace shunt;
using namespace shunt::doctor;

namespace {

struct Said {
  Report report{[this](const std::string& line) { text += line + "\n"; }};
  std::string text;
};

// Configuration space of a bridge: one other capability, then ACS with this control register.
std::string config_space(unsigned control, bool acs = true) {
  std::string bytes(4096, '\0');
  const auto put = [&](size_t at, uint32_t word) {
    for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(word >> (8 * i));
  };
  put(256, 0x0001u | 1u << 16 | (acs ? 320u : 0u) << 20);
  put(320, 0x000du | 1u << 16);
  put(324, control << 16);
  return bytes;
}

struct Ran {
  int status = -1;
  std::string output;
  nlohmann::json json;
};

// The command in a clean environment, with these variables.
Ran run_doctor(const std::string& variables, const std::string& arguments,
               const std::string& program = TEST_COMMAND) {
  const tuner::Folder folder;
  const std::string file = folder.file("doctor.json");
  const std::string command = "env -i PATH=/usr/bin:/bin HOME=" + folder.path() + " " + variables +
                              " " + program + " doctor --json " + file + " " + arguments + " 2>&1";
  Ran ran;
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ran.output.append(buffer, got);
  const int status = pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  std::ifstream text(file);
  if (text) ran.json = nlohmann::json::parse(text);
  return ran;
}

const std::string kEmulated = "LD_LIBRARY_PATH=" TEST_EMULATOR_FOLDER " ";

// How many all-reduces of each size reached the stand-in; only bf16, which is what the checked
// calls have and the library's own measuring has not.
std::map<uint64_t, int> traced_calls(const std::string& path) {
  std::map<uint64_t, int> calls;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.find("fn=ncclAllReduce") == std::string::npos ||
        line.find("type=bfloat16") == std::string::npos)
      continue;
    const size_t at = line.find(" bytes=");
    if (at != std::string::npos) ++calls[std::strtoull(line.c_str() + at + 7, nullptr, 10)];
  }
  return calls;
}

}  // namespace

TEST_CASE("ACS in a bridge's configuration space") {
  CHECK(acs_redirects(config_space(0b0100)) == true);
  CHECK(acs_redirects(config_space(0b1000)) == true);
  CHECK(acs_redirects(config_space(0b0011)) == false);
  CHECK(acs_redirects(config_space(0b1111, false)) == false);  // no such capability
  CHECK_FALSE(acs_redirects(config_space(0b1111).substr(0, 64)).has_value());
  CHECK_FALSE(acs_redirects("").has_value());
  std::string circle = config_space(0);
  circle[256] = 1, circle[259] = 0x10, circle[258] = 0x01;  // the next one is this one
  CHECK(acs_redirects(circle) == false);
  CHECK(acs_redirects(config_space(0b1111).substr(0, 322)) ==
        false);  // cut off in the middle of it
}

TEST_CASE("where a GPU lies") {
  const tuner::Folder root;
  const std::string bridge = root.path() + "/sys/devices/pci0000:10/0000:10:01.0";
  std::filesystem::create_directories(bridge + "/0000:1a:00.0/iommu_group");
  std::filesystem::create_directories(root.path() + "/sys/bus/pci/devices");
  std::filesystem::create_symlink(bridge + "/0000:1a:00.0",
                                  root.path() + "/sys/bus/pci/devices/0000:1a:00.0");
  std::ofstream(bridge + "/0000:1a:00.0/numa_node") << "1\n";
  std::ofstream(bridge + "/0000:1a:00.0/iommu_group/type") << "DMA-FQ\n";
  std::ofstream(bridge + "/config") << config_space(0b0100);
  PciPlace place = read_pci_place("0000:1a:00.0", root.path());
  CHECK(place.numa_node == 1);
  CHECK(place.iommu_domain == "DMA-FQ");
  CHECK(place.acs == std::vector<std::string>{"0000:10:01.0"});
  CHECK(place.acs_told);
  std::ofstream(bridge + "/config")
      << config_space(0b0100).substr(0, 64);  // as it is shown to other users than root
  place = read_pci_place("0000:1a:00.0", root.path());
  CHECK(place.acs.empty());
  CHECK_FALSE(place.acs_told);
  for (const char* id : {"", "0000:ff:00.0", "../.."})
    CHECK(read_pci_place(id, root.path()).numa_node == -1);
}

TEST_CASE("signs of a container, and of NCCL's files") {
  const tuner::Folder root;
  std::filesystem::create_directories(root.path() + "/etc");
  CHECK(read_host(root.path()).nccl_files.empty());
  std::ofstream(root.path() + "/etc/nccl.conf") << "NCCL_P2P_DISABLE=1\n";
  std::ofstream(root.path() + "/.dockerenv") << "";
  const Host host = read_host(root.path());
  CHECK(host.nccl_files == std::vector<std::string>{"/etc/nccl.conf"});
  CHECK(std::ranges::find(host.container, "/.dockerenv") != host.container.end());
  CHECK_FALSE(host.iommu);
  CHECK(host.kernel_driver.empty());
}

TEST_CASE("settings that are malformed or misspelt are broken") {
  Said said;
  const char* const environment[] = {"PATH=/bin", "SHUNT_CAP=64Q", "SHUNT_CAPP=1",
                                     "NCCL_P2P_LEVEL=SYS", nullptr};
  examine_settings(said.report, environment);
  REQUIRE(said.report.all_broken().size() == 2);
  CHECK_THAT(said.report.all_broken()[0], ContainsSubstring("SHUNT_CAP=\"64Q\" is not a size"));
  CHECK_THAT(said.report.all_broken()[1],
             ContainsSubstring("\"SHUNT_CAPP\" is not a setting; did you mean SHUNT_CAP"));
  CHECK_THAT(said.text, ContainsSubstring("NCCL_P2P_LEVEL=\"SYS\""));
  CHECK(said.text.find("PATH") == std::string::npos);
}

TEST_CASE("a driver that is missing is no fault, one that does not work is") {
  Host host;
  Driver driver;
  driver.error = "libcuda.so.1: cannot open";
  driver.missing = true;
  Said none;
  examine_versions(none.report, {}, driver, {}, {}, host);
  CHECK(none.report.all_broken().empty());
  host.kernel_driver = "NVRM version: 580";  // a container without the driver's libraries
  Said half;
  examine_versions(half.report, {}, driver, {}, {}, host);
  CHECK(half.report.all_broken().size() == 1);
  driver.missing = false;
  driver.error = "cuInit: CUDA_ERROR_UNKNOWN (999)";
  Said failing;
  examine_versions(failing.report, {}, driver, {}, {}, Host{});
  CHECK(failing.report.all_broken().size() == 1);
}

TEST_CASE("what a trial shows: broken, or to be expected") {
  trial::Outcome outcome;
  outcome.said.on = true;
  outcome.said.placement = "host";
  const std::string trouble =
      "communicator 1: push does not work: rank 0 (mapping): no access; trying host";
  outcome.said.troubles = {trouble, trouble};
  Said offered, absent;
  examine_trial(offered.report, outcome, {2, true, nullptr});
  CHECK(offered.report.all_broken() == std::vector<std::string>{trouble});
  examine_trial(absent.report, outcome, {2, false, nullptr});
  CHECK(absent.report.all_broken().empty());
  CHECK_THAT(absent.text, ContainsSubstring("note: " + trouble));
  outcome.said.on = false;  // nothing else works either
  outcome.said.troubles.push_back("communicator 1 of 2 ranks: off: rank 1 (memory): none");
  Said off;
  examine_trial(off.report, outcome, {2, false, nullptr});
  CHECK(off.report.all_broken() == std::vector<std::string>{outcome.said.troubles.back()});
}

TEST_CASE("the doctor's cap, the log line's, the counters and what reached NCCL are one") {
  const tuner::Folder folder;
  const std::string trace = folder.file("trace");
  const Ran ran = run_doctor(kEmulated + "SHUNT_ENABLE=on EMU_NCCL_US=3000 EMU_NCCL_TRACE=" + trace,
                             "--gpus 0,1,3");
  INFO(ran.output);
  CHECK(ran.status == 0);
  const nlohmann::json& said = ran.json.at("communicator");
  CHECK(said.at("ranks") == 3);
  CHECK(said.at("cap_source") == "measured");
  const auto cap = said.at("cap").get<uint64_t>();
  CHECK(cap > 0);
  CHECK_THAT(ran.output,
             ContainsSubstring("on, push, cap " + std::to_string(cap) + " bytes (measured)"));
  // Of each size every rank makes one call to NCCL itself, and one that is shunted or not.
  const std::map<uint64_t, int> calls = traced_calls(trace);
  uint64_t shunted = 0, forwarded = 0;
  REQUIRE(calls.size() == trial::sizes_around_caps().size());
  for (const auto& [bytes, count] : calls) {
    INFO(bytes);
    CHECK(count == (bytes <= cap ? 3 : 6));
    (count == 3 ? shunted : forwarded) += 3;
  }
  CHECK(said.at("shunted") == shunted);
  CHECK(said.at("forwarded") == forwarded);
  CHECK_THAT(ran.output, ContainsSubstring("counted as " + std::to_string(shunted) + " shunted, " +
                                           std::to_string(forwarded) + " forwarded"));
  // Up to the cap, what was measured says so.
  REQUIRE_FALSE(said.at("times").empty());
  for (const nlohmann::json& time : said.at("times")) {
    const double best =
        std::min(time.at("one_shot_us").get<double>(), time.at("two_shot_us").get<double>());
    CHECK((time.at("bytes") > cap || best < time.at("nccl_us")));
  }
  CHECK(ran.json.at("gpus").size() == 8);
  CHECK(ran.json.at("pairs").size() == 28);
  CHECK(ran.json.at("gpus")[0].at("pci") == "0000:10:00.0");
  CHECK(ran.json.at("broken").empty());
}

TEST_CASE("a machine that loses data is broken, one without P2P is not") {
  const Ran lossy = run_doctor(kEmulated + "SHUNT_ENABLE=on EMU_GPUS=2 EMU_DROP='0>1'", "");
  INFO(lossy.output);
  CHECK(lossy.status == 1);
  CHECK(lossy.json.at("broken").size() == 1);
  CHECK_THAT(lossy.output, ContainsSubstring("BROKEN: communicator"));
  CHECK_THAT(lossy.output, ContainsSubstring("One thing is broken:"));
  const Ran none = run_doctor(kEmulated + "SHUNT_ENABLE=on EMU_GPUS=2 EMU_NO_P2P='*>*'", "");
  INFO(none.output);
  CHECK(none.status == 0);
  CHECK_THAT(none.output,
             ContainsSubstring("the driver offers no peer access (not supported): 0-1"));
  CHECK_THAT(none.output, ContainsSubstring("note: communicator"));
}

TEST_CASE("NVLink is an answer, and settings of the user are heard") {
  const Ran nvlink = run_doctor(kEmulated + "EMU_GPUS=2 EMU_NVLINK='*'", "");
  INFO(nvlink.output);
  CHECK(nvlink.status == 0);
  CHECK_THAT(nvlink.output, ContainsSubstring("off: all GPUs are joined by NVLink"));
  const Ran malformed = run_doctor(kEmulated + "EMU_GPUS=2 SHUNT_PLACEMENT=up SHUNT_ENABLE=on", "");
  INFO(malformed.output);
  CHECK(malformed.status == 1);
  CHECK(malformed.json.at("broken").size() == 1);  // once, though each rank says it too
}

TEST_CASE("without GPUs, quickly, and with arguments that are none") {
  const Ran none = run_doctor("", "");
  INFO(none.output);
  CHECK(none.status == 0);
  CHECK_THAT(none.output, ContainsSubstring("no GPU is visible"));
  CHECK_THAT(none.output, ContainsSubstring("not tried: there are no two GPUs here"));
  CHECK_THAT(none.output, ContainsSubstring("works: LD_PRELOAD="));
  const Ran quick = run_doctor(kEmulated, "--quick");
  CHECK(quick.status == 0);
  CHECK_FALSE(quick.json.contains("communicator"));
  for (const char* arguments :
       {"--gpus 0", "--gpus 0,0", "--gpus 0,8", "--gpus a,b", "--nonsense", "--timeout 0"}) {
    INFO(arguments);
    CHECK(run_doctor(kEmulated, arguments).status == 2);
  }
}

TEST_CASE("an installation that lacks files is what is broken") {
  const tuner::Folder folder;
  std::filesystem::create_directories(folder.path() + "/bin");
  const std::string program = folder.path() + "/bin/nccl-shunt";
  std::filesystem::copy_file(TEST_COMMAND, program);
  const Ran ran = run_doctor(kEmulated + "EMU_GPUS=2", "", program);
  INFO(ran.output);
  CHECK(ran.status == 1);
  CHECK(ran.json.at("broken").size() == 2);
  CHECK_THAT(ran.output, ContainsSubstring("libnccl-shunt.so is missing"));
  CHECK_THAT(ran.output, ContainsSubstring("nccl-shunt-bench-worker is missing"));
}

TEST_CASE("a profile that fits, and one that does not") {
  const tuner::Folder folder;
  tuner::Profile profile = tuner::sample_profile();
  profile.machine = tuner::machine_facts();
  profile.machine.nccl = "2.28.9";
  profile.machine.ranks = 2;
  profile.caps = {{"push", 65536, 0}};
  const std::string quick =
      kEmulated + "SHUNT_PROFILE=" + folder.write("profile.json", to_json(profile));
  Ran ran = run_doctor(quick, "--gpus 0,1 --quick");
  INFO(ran.output);
  CHECK(ran.status == 0);
  CHECK(ran.json.at("profile").at("fits") == true);
  CHECK_THAT(ran.output, ContainsSubstring("cap push: 64K are shunted, in one shot"));
  profile.machine.driver = "another";
  folder.write("profile.json", to_json(profile));
  ran = run_doctor(quick, "--gpus 0,1 --quick");
  CHECK(ran.status == 1);
  CHECK_THAT(ran.output,
             ContainsSubstring("is ignored: made elsewhere: driver another, here 1.0-emulated"));
}
