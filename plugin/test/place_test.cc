#include <sys/stat.h>

#include <map>

#include "plugin/profile_place.h"
#include "plugin/test/samples.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

struct Environment : std::map<std::string, std::string> {
  using map::map;
  GetEnv get() const {
    return [this](const char* name) -> const char* {
      const auto found = find(name);
      return found == end() ? nullptr : found->second.c_str();
    };
  }
};

}  // namespace

TEST_CASE("SHUNT_PROFILE is a path, or off") {
  Environment environment;
  CHECK_FALSE(profile_setting(environment.get()).off);
  CHECK(profile_setting(environment.get()).path == "");
  for (const char* word : {"", "0", "off", "OFF", "false", "No"}) {
    environment["SHUNT_PROFILE"] = word;
    CHECK(profile_setting(environment.get()).off);
  }
  environment["SHUNT_PROFILE"] = "/a/b.json";
  CHECK_FALSE(profile_setting(environment.get()).off);
  CHECK(profile_setting(environment.get()).path == "/a/b.json");
}

TEST_CASE("the cache folder is an absolute path or none") {
  Environment environment = {{"HOME", "/home/me"}};
  CHECK(cache_folder(environment.get()) == "/home/me/.cache/nccl-shunt");
  environment["XDG_CACHE_HOME"] = "/var/cache/me";
  CHECK(cache_folder(environment.get()) == "/var/cache/me/nccl-shunt");
  environment["XDG_CACHE_HOME"] = "relative";  // as the XDG specification says: ignored
  CHECK(cache_folder(environment.get()) == "/home/me/.cache/nccl-shunt");
  environment["HOME"] = "relative";
  CHECK(cache_folder(environment.get()) == "");
}

TEST_CASE("the plugin is offered only where there is a profile and no other plugin") {
  const Folder library, cache;
  const std::string plugin = library.write("libnccl-tuner-shunt.so", "");
  Environment environment = {{"XDG_CACHE_HOME", cache.path()}};
  CHECK(plugin_to_offer(environment.get(), library.path()) == "");  // no profile

  mkdir(cache.file("nccl-shunt").c_str(), 0700);
  CHECK(plugin_to_offer(environment.get(), library.path()) == "");
  cache.write("nccl-shunt/notes.txt", "");
  CHECK(plugin_to_offer(environment.get(), library.path()) == "");
  cache.write("nccl-shunt/0123456789abcdef.json", "{}");
  CHECK(plugin_to_offer(environment.get(), library.path()) == plugin);

  for (const char* name : {"NCCL_TUNER_PLUGIN", "NCCL_NET_PLUGIN"}) {
    Environment other = environment;
    other[name] = "another";
    CHECK(plugin_to_offer(other.get(), library.path()) == "");
  }
  environment["NCCL_TUNER_PLUGIN"] = "";  // set to nothing is the user's word too
  CHECK(plugin_to_offer(environment.get(), library.path()) == "");
  environment.erase("NCCL_TUNER_PLUGIN");

  environment["SHUNT_ENABLE"] = "off";  // may differ between ranks: must not matter
  CHECK(plugin_to_offer(environment.get(), library.path()) == plugin);
  environment["SHUNT_PROFILE"] = "off";
  CHECK(plugin_to_offer(environment.get(), library.path()) == "");
  environment["SHUNT_PROFILE"] = "/some/where.json";
  CHECK(plugin_to_offer(environment.get(), library.path()) == plugin);
  CHECK(plugin_to_offer(environment.get(), cache.path()) == "");  // no such file there
}
