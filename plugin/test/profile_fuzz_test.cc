// Random texts, the seeds fixed: whatever a file holds, parsing ends soon, with a profile that
// keeps its promises or with one printable line.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <string>

#include "plugin/profile_guard.h"
#include "plugin/profile_json.h"
#include "plugin/test/samples.h"
#include "test/catch.h"

namespace shunt::tuner {
namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

// Pieces that change what a text means more often than single bytes do.
std::string piece(Random& random) {
  static const std::string kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "null",
                                        "true",
                                        "-1",
                                        "1e999",
                                        "-0",
                                        "1.5",
                                        "NaN",
                                        "Infinity",
                                        "0x10",
                                        "\\u0000",
                                        "\\ud800",
                                        "\xff",
                                        "\xc3\xa4",
                                        "\"from\"",
                                        "\"to\":0",
                                        "\"ring\"",
                                        "\"LL128\"",
                                        "\"push\"",
                                        "\"two_shot_from\": 0, ",
                                        "18446744073709551616",
                                        "9223372036854775808",
                                        "\"from\": 0, ",
                                        "{\"a\":",
                                        "[[[[[[[[[",
                                        "\n"};
  return kPieces[random() % std::size(kPieces)];
}

std::string mutate(Random& random, std::string text) {
  for (uint64_t edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = random() % (text.size() + 1);
    switch (random() % 7) {
      case 0:
        text.insert(at, piece(random));
        break;
      case 1:
        text.erase(at, random() % 20);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 3:  // a part again, elsewhere: keys twice, rules out of order
        text.insert(at, text.substr(random() % (text.size() + 1), random() % 80));
        break;
      case 4:  // another digit: numbers of other sizes
        for (size_t i = at; i < text.size(); ++i) {
          if (text[i] < '0' || text[i] > '9') continue;
          text[i] = static_cast<char>('0' + random() % 10);
          break;
        }
        break;
      case 5:  // one placement for another: twice the same
        if (const size_t word = text.find("\"pull\""); word != std::string::npos) {
          text.replace(word, 6, random() % 2 == 0 ? "\"push\"" : "\"host\"");
        }
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

void check_promises(const Profile& profile) {
  const Fingerprint& machine = profile.machine;
  REQUIRE(machine.ranks >= 2);
  REQUIRE(machine.ranks <= 1024);
  REQUIRE(machine.links.size() == machine.gpus.size() * (machine.gpus.size() - 1) / 2);
  for (const Collective collective : kCollectives) {
    const Rule* before = nullptr;
    for (const Rule& rule : profile.rules(collective)) {
      REQUIRE(rule.from <= rule.to);
      REQUIRE(rule.to <= kMaxBytes);
      if (before != nullptr) REQUIRE(before->to < rule.from);
      REQUIRE((rule.wish.algorithm >= 0 && rule.wish.algorithm < 7));
      REQUIRE((rule.wish.protocol >= 0 && rule.wish.protocol < 3));
      REQUIRE((rule.wish.channels >= 0 && rule.wish.channels <= kMaxChannels));
      REQUIRE((std::isfinite(rule.us) && rule.us >= 0));
      before = &rule;
    }
  }
  REQUIRE(printable(profile.unsafe_words, 256) == profile.unsafe_words);
  REQUIRE(profile.caps.size() <= std::size(kShuntPlacements));
  for (size_t i = 0; i < profile.caps.size(); ++i) {
    const ShuntCap& cap = profile.caps[i];
    REQUIRE(std::ranges::find(kShuntPlacements, cap.placement) != std::end(kShuntPlacements));
    REQUIRE(cap.bytes <= kMaxShuntCap);
    REQUIRE(cap.two_shot_from <= kMaxShuntCap);
    for (size_t j = 0; j < i; ++j) REQUIRE(profile.caps[j].placement != cap.placement);
  }
}

TEST_CASE("mutated profiles") {
  Profile full = sample_profile();
  full.unsafe_words = "words";
  full.measured = R"({"all-reduce":[{"bytes":8,"tried":{"ring/LL":5.5}}]})";
  full.caps = {{"push", 131072, 65536}, {"pull", 0, 0}, {"host", 16777216, 16777216}};
  const std::string seeds[] = {to_json(sample_profile()), to_json(full), "{}", "[]", ""};
  size_t accepted = 0, refused = 0;
  const auto end = Clock::now() + std::chrono::seconds(20);
  for (uint64_t seed = 1; seed <= 40000 && Clock::now() < end; ++seed) {
    Random random(seed);
    const std::string text = mutate(random, seeds[random() % std::size(seeds)]);
    INFO("seed " << seed);
    try {
      const Profile profile = parse_profile(text);
      ++accepted;
      check_promises(profile);
      REQUIRE(parse_profile(to_json(profile)) == profile);
    } catch (const std::runtime_error& error) {
      ++refused;
      const std::string line = error.what();
      REQUIRE_FALSE(line.empty());
      REQUIRE(line.size() < 400);
      for (const char c : line) REQUIRE((c >= 0x20 && c <= 0x7e));
    }
  }
  // Both sides are exercised.
  CHECK(accepted > 200);
  CHECK(refused > 2000);
}

TEST_CASE("noise, and long texts of one piece: bounded in time") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    std::string text;
    const std::string one = piece(random);
    const size_t length = random() % (seed % 4 == 0 ? kMaxProfileText : 20000);
    while (text.size() < length) text += random() % 50 == 0 ? piece(random) : one;
    const auto begin = Clock::now();
    CHECK_THROWS_AS(parse_profile(text), std::runtime_error);
    INFO("seed " << seed);
    REQUIRE(Clock::now() - begin < std::chrono::seconds(5));
  }
}

}  // namespace
}  // namespace shunt::tuner
