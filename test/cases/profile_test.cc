// The cap that a profile says, in place of one that is measured: only where all ranks read the same.
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "plugin/machine.h"
#include "plugin/profile_json.h"
#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

const std::vector<size_t> kSizes = {8, 4096, 24576, 24580, 131072};
constexpr size_t kCap = 24576;  // no size that is measured

// What `nccl-shunt tune` would write here.
shunt::tuner::Profile profile_of(int ranks, uint64_t cap) {
  shunt::tuner::Profile profile;
  profile.machine = shunt::tuner::machine_facts();
  profile.machine.ranks = static_cast<uint32_t>(ranks);
  int version = 0;
  NCCL(ncclGetVersion(&version));
  profile.machine.nccl = shunt::tuner::nccl_version_text(version);
  profile.caps = {{"push", cap, 8192}, {"host", 8192, 0}};
  return profile;
}

class ProfileFile {
 public:
  ProfileFile(const std::string& name, const std::string& text) : file_(name) {
    std::ofstream(file_.path()) << text;
    chmod(file_.path().c_str(), 0600);
  }
  ProfileFile(const std::string& name, const shunt::tuner::Profile& profile)
      : ProfileFile(name, shunt::tuner::to_json(profile)) {}
  Environment setting() const { return {{"SHUNT_PROFILE", file_.path()}}; }

 private:
  TemporaryFile file_;
};

const Environment kMeasure = {{"SHUNT_CAP", "measure"}, {"SHUNT_LOG", "debug"}};

unsigned long long shunted_up_to(size_t cap) {
  unsigned long long calls = 0;
  for (const size_t bytes : kSizes) calls += bytes <= cap ? 1 : 0;
  return calls;
}

// The ranks' files differ or one lacks it: all of them measure, and all results are right.
void expect_measured(const std::function<Environment(int)>& of_rank) {
  Job job("profile", {.environment = kMeasure, .of_rank = of_rank});
  CHECK(job.trouble() == "");
  const std::string all = job.output();
  INFO(all);
  CHECK(count_of(all, "all right\n") == 2);
  CHECK_FALSE(lines_of(all, "debug", {"NCCL", "one shot", "two shots"}).empty());
  CHECK(lines_of(all, "info", {"of the profile"}).empty());
  CHECK(total(all, "shunted") % 2 == 0);
  CHECK(total(all, "shunted") + total(all, "forwarded") == 2 * kSizes.size());
}

}  // namespace

TEST_CASE("job: profile", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  run_sizes(rank, comm, stream, 1, kSizes);
  done(rank, {comm});
}

TEST_CASE("case_37_cap_of_a_profile") {
  for (const int ranks : {2, 3}) {
    const ProfileFile file("shunt-profile", profile_of(ranks, kCap));
    Environment environment = file.setting();
    environment.insert(kMeasure.begin(), kMeasure.end());
    const auto n = static_cast<unsigned long long>(ranks);
    {
      Job job("profile", {.ranks = ranks, .environment = environment});
      CHECK(job.trouble() == "");
      const std::string all = job.output();
      INFO(all);
      CHECK(count_of(all, "all right\n") == static_cast<size_t>(ranks));
      CHECK(lines_of(all, "info", {"on, push, cap 24576 bytes (of the profile)"}).size() == 1);
      CHECK(lines_of(all, "debug", {"two shots from 8192 bytes"}).size() == 1);
      CHECK(lines_of(all, "debug", {"NCCL", "one shot", "two shots"}).empty());
      CHECK(total(all, "shunted") == n * shunted_up_to(kCap));
      CHECK(total(all, "forwarded") == n * (kSizes.size() - shunted_up_to(kCap)));
    }
    // What it says of the placement that is used in the end.
    environment["EMU_DROP"] = "0>1";
    Job job("profile", {.ranks = ranks, .environment = environment});
    CHECK(job.trouble() == "");
    INFO(job.output());
    CHECK(lines_of(job.output(), "info", {"on, host, cap 8192 bytes (of the profile)"}).size() == 1);
    CHECK(total(job.output(), "shunted") == n * shunted_up_to(8192));
  }
}

TEST_CASE("case_37_cap_of_a_profile_from_the_cache") {
  const TemporaryFile cache("shunt-cache");
  const shunt::tuner::Profile profile = profile_of(2, kCap);
  const std::string folder = cache.path() + "/nccl-shunt";
  REQUIRE(mkdir(cache.path().c_str(), 0700) == 0);
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  const std::string path = folder + "/" + key_of(profile.machine) + ".json";
  std::ofstream(path) << to_json(profile);
  chmod(path.c_str(), 0600);
  Environment environment = kMeasure;
  environment["XDG_CACHE_HOME"] = cache.path();
  Job job("profile", {.environment = environment});
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(lines_of(job.output(), "info", {"cap 24576 bytes (of the profile)"}).size() == 1);
  unlink(path.c_str());
  rmdir(folder.c_str());
}

TEST_CASE("case_37_cap_of_profiles_that_differ") {
  const shunt::tuner::Profile profile = profile_of(2, kCap);
  const ProfileFile file("shunt-profile", profile), other("shunt-profile-other", profile_of(2, 8192));
  expect_measured([&](int rank) { return rank == 0 ? file.setting() : other.setting(); });
  expect_measured([&](int rank) { return rank == 1 ? file.setting() : Environment{{"SHUNT_PROFILE", "off"}}; });
  shunt::tuner::Profile no_push = profile;
  no_push.caps = {{"host", kCap, 0}};
  const ProfileFile without("shunt-profile-without", no_push);
  expect_measured([&](int rank) { return rank == 0 ? file.setting() : without.setting(); });
  expect_measured([&](int) { return without.setting(); });
}

TEST_CASE("case_37_cap_of_an_unusable_profile") {
  const shunt::tuner::Profile profile = profile_of(2, kCap);
  const ProfileFile file("shunt-profile", profile), noise("shunt-profile-noise", "{\"a\": \x01");
  shunt::tuner::Profile elsewhere = profile;
  elsewhere.machine.driver = "another";
  const ProfileFile other("shunt-profile-elsewhere", elsewhere);
  for (const ProfileFile* bad : {&noise, &other}) {
    expect_measured([&](int rank) { return rank == 0 ? file.setting() : bad->setting(); });
    Environment environment = bad->setting();
    environment.insert(kMeasure.begin(), kMeasure.end());
    Job job("profile", {.environment = environment});
    CHECK(job.trouble() == "");
    INFO(job.output());
    CHECK(lines_of(job.output(), "error", {"profile ", " is ignored: "}).size() == 2);  // one a process
  }
}

TEST_CASE("case_37_cap_of_a_profile_is_zero_or_not_asked_for") {
  const ProfileFile never("shunt-profile-never", profile_of(2, 0)), file("shunt-profile", profile_of(2, kCap));
  {
    Environment environment = never.setting();
    environment.insert(kMeasure.begin(), kMeasure.end());
    Job job("profile", {.environment = environment});
    CHECK(job.trouble() == "");
    INFO(job.output());
    CHECK(lines_of(job.output(), "info", {"off: NCCL is faster at every size (of the profile)"}).size() == 1);
    CHECK(total(job.output(), "shunted") == 0);
  }
  Job job("profile", {.environment = file.setting()});  // SHUNT_CAP is not `measure`
  CHECK(job.trouble() == "");
  INFO(job.output());
  CHECK(lines_of(job.output(), "info", {"on, push, cap 131072 bytes"}).size() == 1);
  CHECK(total(job.output(), "shunted") == 2 * kSizes.size());
}
