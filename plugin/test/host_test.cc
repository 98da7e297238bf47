// The plugin's file, loaded and called by each interface version as NCCL does.
#include "plugin/test/host.h"

#include <dlfcn.h>

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "plugin/machine.h"
#include "plugin/profile_file.h"
#include "plugin/profile_json.h"
#include "plugin/test/samples.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

constexpr int kVersions[] = {2, 3, 4, 5, 6};

std::string variant(int version) { return TEST_VARIANTS + std::to_string(version) + ".so"; }

// A profile in a file that SHUNT_PROFILE names. The plugin reads it once as long as it stays
// loaded.
struct Setup {
  Folder folder;
  explicit Setup(const Profile& profile = sample_profile()) {
    // Whatever the machine sets for NCCL would be another machine to the plugin.
    std::vector<std::string> names = {"TEST_GPUS", "TEST_GPU_NAME", "TEST_NVML_FAILS"};
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text(*variable);
      if (text.starts_with("NCCL_")) names.push_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : names) unsetenv(name.c_str());
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("SHUNT_PROFILE", folder.write("profile.json", to_json(profile)).c_str(), 1);
    Host::log().clear();
  }
  ~Setup() { unsetenv("SHUNT_PROFILE"); }
};

// What a plugin does wrong; "" if nothing. The profile is the sample.
std::string faults(const std::string& file, int version) {
  try {
    Host host(file, version);
    Answer answer = host.ask(abi::kAllReduce, 512);
    if (answer.algorithm != abi::kRing || answer.protocol != abi::kLl)
      return "profile not followed";
    if (answer.channels != 0) return "channels without being asked";
    answer = host.ask(abi::kAllReduce, 4096);
    if (answer.algorithm != abi::kTree || answer.protocol != abi::kSimple) return "second rule";
    // Version 2 must not name channels: NCCL 2.21 does not limit them.
    if (answer.channels != (version == 2 ? 0 : 4)) return "channels";
    answer = host.ask(abi::kAllReduce, 2048);
    if (!answer.untouched()) return "opinion where the profile has none";
    if (version == 2 && answer.algorithm != -1) return "named where the profile has none";
    Costs without = pcie_costs();
    without[abi::kRing][abi::kLl] = abi::kIgnore;
    if (version > 2 && host.ask(abi::kAllReduce, 512, without).costs != without) return "ruled out";
    if (!host.ask(abi::kAllGather, 16).untouched()) return "LL128 on PCIe";
    if (version == 2 && host.ask(abi::kAllGather, 16).algorithm != -1) return "LL128 on PCIe";
    for (const int function : {0, 1, 3, 5, 8, 99})
      if (!host.ask(function, 512).untouched()) return "unknown collective";
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// True if a communicator of the plugin leaves everything as it is, in every version.
bool inert(size_t ranks = 2, size_t nodes = 1) {
  for (const int version : kVersions) {
    Host host(TEST_PLUGIN, version, ranks, nodes);
    for (const int function : {2, 3, 4})
      for (const size_t bytes : {1u, 16u, 512u, 4096u}) {
        const Answer answer = host.ask(function, bytes);
        if (!answer.untouched() || (version == 2 && answer.algorithm != -1)) return false;
      }
  }
  return true;
}

bool logged(const std::string& part) {
  for (const std::string& line : Host::log())
    if (line.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("every interface version follows the profile, and only it") {
  const Setup setup;
  for (const int version : kVersions) {
    INFO("version " << version);
    CHECK(faults(TEST_PLUGIN, version) == "");
    for (const std::string& line : Host::log()) UNSCOPED_INFO(line);
    CHECK(faults(variant(version), version) == "");
    CHECK(logged("I TUNER/nccl-shunt: profile /"));
    for (const int other : kVersions) {
      if (other != version)
        CHECK(faults(variant(version), other) == "this version is not exported");
    }
  }
}

TEST_CASE("the check finds a plugin that is wrong") {
  const Setup setup;
  CHECK(faults(TEST_BROKEN, 5) == "init changed NCCL's constants");
  CHECK(faults(TEST_BROKEN, 6) == "this version is not exported");
}

TEST_CASE("without a profile for this machine NCCL's choice is untouched") {
  SECTION("the same check fails with one") {
    const Setup setup;
    CHECK_FALSE(inert());
  }
  SECTION("several machines") {
    const Setup setup;
    CHECK(inert(2, 2));
    CHECK(logged("several machines"));
  }
  SECTION("another number of ranks") {
    const Setup setup;
    CHECK(inert(3));
    CHECK(logged("I TUNER/nccl-shunt: no profile for 3 ranks"));
    CHECK(inert(1));
    CHECK(inert(0));
    CHECK(inert(SIZE_MAX));
  }
  SECTION("another GPU") {
    const Setup setup;
    setenv("TEST_GPU_NAME", "Other GPU", 1);
    CHECK(inert());
    CHECK(logged("made elsewhere: GPUs 2 x Test GPU, here 2 x Other GPU"));
  }
  SECTION("peer access switched off") {
    const Setup setup;
    setenv("NCCL_P2P_DISABLE", "1", 1);
    CHECK(inert());
    CHECK(logged("here NCCL_P2P_DISABLE=1"));
  }
  SECTION("NVML fails") {
    const Setup setup;
    setenv("TEST_NVML_FAILS", "1", 1);
    CHECK(inert());
    CHECK(logged("I TUNER/nccl-shunt: the machine cannot be told: nvmlInit_v2 failed (9)"));
  }
  SECTION("switched off") {
    const Setup setup;
    setenv("SHUNT_PROFILE", "off", 1);
    CHECK(inert());
  }
  SECTION("no such file") {
    const Setup setup;
    setenv("SHUNT_PROFILE", "/nonexistent/profile.json", 1);
    CHECK(inert());
    CHECK(logged("W TUNER/nccl-shunt: profile /nonexistent/profile.json is ignored"));
  }
  SECTION("a file that is none") {
    const Setup setup;
    setenv("SHUNT_PROFILE", setup.folder.write("bad.json", "{]").c_str(), 1);
    CHECK(inert());
    CHECK(logged("is ignored: not JSON"));
  }
}

TEST_CASE("LL128 that NCCL rules out: with the user's words, and not against NCCL_PROTO") {
  Profile profile = sample_profile();
  profile.unsafe_words = "tested for a week on this board";
  const Setup setup(profile);
  for (const int version : {3, 4, 5, 6}) {
    Host host(TEST_PLUGIN, version);
    const Answer answer = host.ask(abi::kAllGather, 16);
    CHECK((answer.algorithm == abi::kRing && answer.protocol == abi::kLl128));
  }
  CHECK(logged("on the word of the profile's maker: tested for a week on this board"));
  CHECK(Host(TEST_PLUGIN, 2).ask(abi::kAllGather, 16).algorithm == -1);
  setenv("NCCL_PROTO", "LL,Simple", 1);
  CHECK(Host(TEST_PLUGIN, 5).ask(abi::kAllGather, 16).untouched());
  unsetenv("NCCL_PROTO");
}

TEST_CASE("a profile that is replaced is not read again while a communicator lives") {
  const Setup setup;
  Host first(TEST_PLUGIN, 5);
  setup.folder.write("profile.json", "{}");
  Host second(TEST_PLUGIN, 5);
  CHECK(second.ask(abi::kAllReduce, 512).protocol == abi::kLl);
}

TEST_CASE("NVLS in version 2, where NCCL says that it has it") {
  Profile profile = sample_profile();
  profile.all_reduce[0].wish = {abi::kNvls, abi::kSimple, 0};
  const Setup setup(profile);
  Host host(TEST_PLUGIN, 2);
  CHECK(host.ask(abi::kAllReduce, 512, pcie_costs(), false).algorithm == -1);
  CHECK(host.ask(abi::kAllReduce, 512, pcie_costs(), true).algorithm == abi::kNvls);
}

TEST_CASE("the real NCCL, where the build has found one, tells its version by an address in it") {
  void* const nccl = dlopen(TEST_NCCL, RTLD_NOW | RTLD_LOCAL);
  if (nccl == nullptr) {
    WARN("not run: " << dlerror());
    return;
  }
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(nccl, "ncclGetVersion"));
  REQUIRE(get != nullptr);
  int number = 0;
  REQUIRE(get(&number) == 0);
  CHECK(nccl_version_at(dlsym(nccl, "pncclAllReduce")) == nccl_version_text(number));
  CHECK(nccl_version_at(reinterpret_cast<const void*>(&inert)) == "2.28.9");  // this program's own
  dlclose(nccl);
}
