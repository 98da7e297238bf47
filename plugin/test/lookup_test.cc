#include "plugin/lookup.h"

#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "plugin/profile_file.h"
#include "plugin/profile_json.h"
#include "plugin/test/samples.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

struct World {
  Folder folder;
  std::map<std::string, std::string> environment = {{"XDG_CACHE_HOME", folder.path()}};
  Fingerprint here = sample_machine();

  Found find() const {
    return find_profile(
        [this](const char* name) -> const char* {
          const auto found = environment.find(name);
          return found == environment.end() ? nullptr : found->second.c_str();
        },
        here);
  }
  void put(const Profile& profile) const {
    write_profile_file(cache_file(folder.path() + "/nccl-shunt", key_of(here)), to_json(profile));
  }
};

}  // namespace

TEST_CASE("from the cache, by fingerprint") {
  World world;
  Found found = world.find();
  CHECK_FALSE(found.profile);
  CHECK_FALSE(found.error);  // to have none is no fault
  world.put(sample_profile());
  found = world.find();
  REQUIRE(found.profile);
  CHECK(*found.profile == sample_profile());
  world.here.driver = "580.2";
  CHECK_FALSE(world.find().profile);
}

TEST_CASE("a file under the right name that is for another machine") {
  World world;
  Profile other = sample_profile();
  other.machine.nccl = "2.27.3";
  world.put(other);
  const Found found = world.find();
  CHECK_FALSE(found.profile);
  CHECK(found.error);
  CHECK_THAT(found.line, ContainsSubstring("made elsewhere: NCCL 2.27.3, here 2.28.9"));
}

TEST_CASE("SHUNT_PROFILE names the file, or says that there is none") {
  World world;
  world.put(sample_profile());
  world.environment["SHUNT_PROFILE"] = "off";
  CHECK_FALSE(world.find().profile);
  world.environment["SHUNT_PROFILE"] = world.folder.file("mine.json");
  Found found = world.find();
  CHECK_FALSE(found.profile);  // and not the cache's instead
  CHECK(found.error);
  CHECK_THAT(found.line, ContainsSubstring("there is no such file"));
  world.folder.write("mine.json", to_json(sample_profile()));
  CHECK(world.find().profile);

  world.here.ranks = 4;  // a communicator of another size is everyday life
  found = world.find();
  CHECK_FALSE(found.profile);
  CHECK_FALSE(found.error);
}

TEST_CASE("a malformed or hostile file is one line and no profile") {
  World world;
  const std::string path = world.folder.file("mine.json");
  world.environment["SHUNT_PROFILE"] = path;
  world.folder.write("mine.json", "{\"a\": \n\x01");
  Found found = world.find();
  CHECK_FALSE(found.profile);
  CHECK(found.error);
  CHECK_THAT(found.line, ContainsSubstring("is ignored: not JSON at byte"));
  CHECK(found.line.find('\n') == std::string::npos);

  const std::string good = world.folder.write("good.json", to_json(sample_profile()));
  REQUIRE(unlink(path.c_str()) == 0);
  REQUIRE(symlink(good.c_str(), path.c_str()) == 0);
  CHECK(world.find().error);
  world.environment["SHUNT_PROFILE"] = "/tmp/\n\x1b[2J";
  CHECK_THAT(world.find().line, ContainsSubstring("profile /tmp/??[2J is ignored"));
}

TEST_CASE("some of the GPUs, joined differently: only if the user names the file") {
  World world;
  world.here.gpus.push_back("Test GPU");
  world.here.links = {"NV4", "PHB", "PHB"};
  Profile profile = sample_profile();
  profile.machine = world.here;
  world.put(profile);
  const Found found = world.find();
  CHECK_FALSE(found.profile);
  CHECK_FALSE(found.error);
  CHECK_THAT(found.line, ContainsSubstring("not all joined alike"));
  world.environment["SHUNT_PROFILE"] = world.folder.write("mine.json", to_json(profile));
  CHECK(world.find().profile);
}
