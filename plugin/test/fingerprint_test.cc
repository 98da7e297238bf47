#include "plugin/fingerprint.h"

#include <cstring>
#include <set>

#include "plugin/machine.h"
#include "plugin/test/samples.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

std::map<std::string, std::string> environment;
const char* get(const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : found->second.c_str();
}

}  // namespace

TEST_CASE("every field counts, in the key and in the comparison") {
  const Fingerprint here = sample_machine();
  CHECK(difference(here, here) == "");
  std::vector<Fingerprint> others(7, here);
  others[0].gpus = {"Test GPU"};
  others[1].gpus[1] = "Another GPU";
  others[2].links = {"SYS"};
  others[3].driver = "580.2";
  others[4].nccl = "2.28.10";
  others[5].ranks = 4;
  others[6].settings.emplace("NCCL_P2P_DISABLE", "1");
  std::set<std::string> keys = {key_of(here)};
  for (const Fingerprint& other : others) {
    CHECK(difference(other, here) != "");
    CHECK(difference(here, other) != "");
    keys.insert(key_of(other));
  }
  CHECK(keys.size() == 8);
  CHECK(key_of(here).size() == 16);
  CHECK(difference(others[3], here) == "driver 580.2, here 580.1");
}

TEST_CASE("names and links do not run into each other in the key") {
  Fingerprint a = sample_machine(), b = a;
  a.gpus = {"A", "BC"};
  b.gpus = {"AB", "C"};
  CHECK(key_of(a) != key_of(b));
}

TEST_CASE("which settings matter") {
  environment = {{"NCCL_P2P_DISABLE", "0"}, {"NCCL_SHM_DISABLE", ""}, {"NCCL_DEBUG", "INFO"}};
  CHECK(settings_of(get).empty());
  environment = {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_P2P_LEVEL", "SYS"}};
  CHECK(settings_of(get) == environment);
}

TEST_CASE("some of the GPUs: only where it does not matter which") {
  Fingerprint here = sample_machine();
  CHECK(any_gpus_alike(here));
  here.links = {"SYS"};
  CHECK(any_gpus_alike(here));  // all of them: there is only one choice

  here.gpus.assign(3, "Test GPU");
  here.links = {"NV4", "NV4", "NV4"};
  CHECK(any_gpus_alike(here));
  here.links = {"NV4", "PHB", "PHB"};
  CHECK_FALSE(any_gpus_alike(here));
  here.links = {"NV4", "NV4", "NV4"};
  here.gpus[2] = "Another GPU";
  CHECK_FALSE(any_gpus_alike(here));
  here.ranks = 3;
  CHECK(any_gpus_alike(here));
  here.ranks = 4;  // more ranks than GPUs
  CHECK_FALSE(any_gpus_alike(here));
}

TEST_CASE("NCCL's version numbers") {
  CHECK(nccl_version_text(22809) == "2.28.9");
  CHECK(nccl_version_text(22105) == "2.21.5");
  CHECK(nccl_version_text(2708) == "2.7.8");
  CHECK(nccl_version_text(0) == "");
  CHECK(nccl_version_at(nullptr) == "");
  CHECK(nccl_version_at(reinterpret_cast<const void*>(&std::strlen)) == "");  // libc is no NCCL
}
