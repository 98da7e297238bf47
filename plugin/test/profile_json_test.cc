#include "plugin/profile_json.h"

#include "plugin/test/samples.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

// Why a text is refused; "" if it is not.
std::string refusal(const std::string& text) {
  try {
    parse_profile(text);
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The sample's text with `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_json(sample_profile());
  const size_t at = text.find(from);
  INFO(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("what is written is read again") {
  Profile profile = sample_profile();
  CHECK(parse_profile(to_json(profile)) == profile);
  profile.unsafe_words = "LL128 is fine on this board";
  profile.machine.settings = {{"NCCL_P2P_DISABLE", "1"}};
  profile.machine.gpus.push_back("Third");
  profile.machine.links = {"PHB", "SYS", "NV4"};
  profile.made = R"({"date":"2026-11-30"})";
  profile.measured = R"({"all-reduce":[{"bytes":8}]})";
  profile.caps = {{"push", 131072, 0}, {"host", 0, 0}, {"pull", kMaxShuntCap, 65536}};
  CHECK(parse_profile(to_json(profile)) == profile);
}

TEST_CASE("what is wrong is named, with its place") {
  const auto says = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK_THAT(refusal(text), ContainsSubstring(part));
  };
  CHECK(refusal(to_json(sample_profile())) == "");
  says("", "not JSON");
  says("{", "not JSON at byte");
  says("[]", "must be an object");
  says("null", "must be an object");
  says(changed("nccl-shunt profile", "something"), "format: must be");
  says(changed("\"version\": 1", "\"version\": 2"), "version: must be a whole number from 1 to 1");
  says(changed("\"version\": 1", "\"version\": 1.0"), "version: must be a whole number");
  says(changed("\"driver\"", "\"drivel\""), "machine: unknown member \"drivel\"");
  says(changed("\"ranks\": 2", "\"ranks\": 1"), "machine.ranks: must be a whole number from 2");
  says(changed("\"ranks\": 2", "\"ranks\": -2"), "machine.ranks: must be a whole number");
  says(changed("\"ranks\": 2", "\"ranks\": 4294967298"), "machine.ranks: must be");
  says(changed("\"settings\": {}", "\"settings\": {\"PATH\": \"x\"}"), "unknown member \"PATH\"");
  says(changed("\"PHB p2p\"", "\"PHB p2p\", \"PHB\""), "machine.links: must have one entry");
  says(changed("\"from\": 1,", "\"from\": -1,"), "collectives.all-reduce[0].from: must be");
  says(changed("\"from\": 1,", "\"from\": 1025,"), "collectives.all-reduce[0].to: must be");
  says(changed("\"from\": 4096", "\"from\": 1024"), "all-reduce[1]: must begin after");
  says(changed("\"to\": 8192", "\"to\": 18446744073709551615"), "all-reduce[1].to: must be");
  says(changed("\"to\": 8192", "\"to\": 1e30"), "all-reduce[1].to: must be");
  says(changed("\"to\": 8192", "\"to\": NaN"), "not JSON at byte");
  says(changed("\"to\": 8192", "\"to\": 1e999"), "not JSON at byte");
  says(changed("\"channels\": 4", "\"channels\": 0"), "channels: must be a whole number from 1");
  says(changed("\"channels\": 4", "\"channels\": 65"), "channels: must be a whole number");
  says(changed("\"ring\"", "\"rung\""), "algorithm: \"rung\" is none");
  says(changed("\"LL\"", "\"ll\""), "protocol: \"ll\" is none");
  says(changed("\"us\": 5.0", "\"us\": -5.0"), "us: must be a time");
  says(changed("\"us\": 5.0", "\"us\": \"5\""), "us: must be a time");
  says(changed("\"all-gather\"", "\"broadcast\""), "unknown member \"broadcast\"");
  says(changed("\"driver\": \"580.1\"", "\"driver\": \"5\\u0007\""), "must be printable ASCII");
  says(changed("\"driver\": \"580.1\"", "\"driver\": \"\""), "1 to 256 characters");
  says(changed("\"driver\": \"580.1\"", "\"driver\": \"580.1\", \"driver\": \"2\""),
       "the key \"driver\" appears twice");
  says(changed("\"collectives\"", "\"shunt\": {}, \"collectives\""),
       "shunt: \"version\" is missing");
  says(changed("\"collectives\"", "\"unsafe\": true, \"collectives\""), "unsafe: must be a string");
}

TEST_CASE("the library's caps are checked like the rest") {
  const auto with = [](const std::string& shunt) {
    return changed("\"collectives\"", "\"shunt\": " + shunt + ", \"collectives\"");
  };
  const auto says = [&](const std::string& shunt, const char* part) {
    INFO(shunt);
    CHECK_THAT(refusal(with(shunt)), ContainsSubstring(part));
  };
  CHECK(parse_profile(with(R"({"version": 1})")).caps.empty());
  const Profile profile = parse_profile(
      with(R"({"version": 1, "caps": [{"placement": "host", "cap": 4096, "two_shot_from": 1}]})"));
  CHECK(profile.caps == std::vector<ShuntCap>{{"host", 4096, 1}});
  CHECK(profile.shunt.empty());
  says("[]", "shunt: must be an object");
  says(R"({"version": 0})", "shunt.version: must be a whole number from 1");
  says(R"({"version": 1, "cap": 1})", "shunt: unknown member \"cap\"");
  says(R"({"version": 1, "caps": {}})", "shunt.caps: must be a list");
  says(R"({"version": 1, "caps": [1]})", "shunt.caps[0]: must be an object");
  says(R"({"version": 1, "caps": [{"cap": 1}]})", "shunt.caps[0]: \"placement\" is missing");
  says(R"({"version": 1, "caps": [{"placement": "push"}]})", "shunt.caps[0]: \"cap\" is missing");
  says(R"({"version": 1, "caps": [{"placement": "up", "cap": 1}]})", "placement: \"up\" is none");
  says(R"({"version": 1, "caps": [{"placement": "push", "cap": -1}]})",
       "cap: must be a whole number");
  says(R"({"version": 1, "caps": [{"placement": "push", "cap": 16777217}]})",
       "cap: must be a whole");
  says(R"({"version": 1, "caps": [{"placement": "push", "cap": 1, "two_shot_from": 0}]})",
       "two_shot_from: must be a whole number from 1");
  says(
      R"({"version": 1, "caps": [{"placement": "push", "cap": 1}, {"placement": "push", "cap": 2}]})",
      "shunt.caps[1]: \"push\" appears twice");
}

TEST_CASE("an unknown part is kept, and not looked into") {
  const Profile profile = parse_profile(changed(
      "\"collectives\"", R"("shunt": {"version": 7, "new": [1, {"x": null}]}, "collectives")"));
  CHECK(profile.shunt == R"({"version":7,"new":[1,{"x":null}]})");
}

TEST_CASE("large and deep texts end soon, with a reason") {
  CHECK(refusal(std::string(kMaxProfileText + 1, ' ')) == "larger than 1048576 bytes");
  CHECK_THAT(refusal(std::string(kMaxProfileText, '[')), ContainsSubstring("nested more than 8"));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  CHECK_THAT(refusal(deep), ContainsSubstring("nested more than 8"));
  std::string many = "[0";
  while (many.size() < kMaxProfileText - 10) many += ",0";
  CHECK_THAT(refusal(many + "]"), ContainsSubstring("more than 100000 values"));
  // Deep in a part that is not looked into: the same.
  CHECK_THAT(refusal(changed("\"collectives\"", "\"made\": [[[[[[[[[[]]]]]]]]]], \"collectives\"")),
             ContainsSubstring("nested more than 8"));
}
