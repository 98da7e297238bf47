// Runs programs under hostile memory for a range of seeds:
//   protocol_sim --program mixed --ranks 2,3 --seeds 100 --first-seed 1
// Exit status 0: every run was right. With --expect KIND (a negative control): 0 if at least one
// run failed in that way (the first one ends it), 1 if none did.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "test/protocol/options.h"

namespace {

struct Arguments {
  sim::Options options;
  std::vector<uint32_t> ranks{2, 3, 4, 5, 8};
  uint64_t first_seed = 1;
  uint64_t seeds = 20;
  std::string expect;
};

[[noreturn]] void usage(const std::string& wrong) {
  std::fprintf(stderr, "protocol_sim: %s\n", wrong.c_str());
  std::fprintf(
      stderr,
      "options: --program NAME --ranks N,N,... --seeds N --first-seed N --calls N --cap BYTES\n"
      "         --max-lanes N --types all|flagged|sentinel|NAME --aligned\n"
      "         --placement any|push|pull --shots any|one|two\n"
      "         --expect none|wrong-sum|hang|store-after-stop|trap|stray|unreported\n");
  std::exit(2);
}

std::vector<uint32_t> parse_list(const char* text) {
  std::vector<uint32_t> list;
  for (char* end; *text != 0; text = *end == ',' ? end + 1 : end) {
    list.push_back(static_cast<uint32_t>(std::strtoul(text, &end, 10)));
    if (end == text || list.back() < 2 || list.back() > 8) usage("ranks are 2 to 8");
  }
  return list;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--aligned") {
      a.options.aligned = true;
      continue;
    }
    if (++i == argc) usage(name + " wants a value");
    const char* value = argv[i];
    const auto number = [&] { return std::strtoull(value, nullptr, 10); };
    if (name == "--program") {
      a.options.program = value;
    } else if (name == "--ranks") {
      a.ranks = parse_list(value);
    } else if (name == "--seeds") {
      a.seeds = number();
    } else if (name == "--first-seed") {
      a.first_seed = number();
    } else if (name == "--calls") {
      a.options.calls = static_cast<uint32_t>(number());
    } else if (name == "--cap") {
      a.options.cap = static_cast<uint32_t>(number());
    } else if (name == "--max-lanes") {
      a.options.max_lanes = static_cast<uint32_t>(number());
    } else if (name == "--types") {
      a.options.types = value;
    } else if (name == "--placement") {
      a.options.placement = value;
    } else if (name == "--shots") {
      a.options.shots = value;
    } else if (name == "--expect") {
      a.expect = value;
    } else {
      usage("unknown option " + name);
    }
  }
  if (!sim::is_program(a.options.program)) usage("no program " + a.options.program);
  if (a.options.calls < 2) usage("at least 2 calls");
  return a;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments a = parse(argc, argv);
  std::map<std::string, uint64_t> failures;
  uint64_t runs = 0, calls = 0, turns = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto shown = [&] { return !a.expect.empty() && failures.count(a.expect) != 0; };
  for (uint64_t seed = a.first_seed; seed < a.first_seed + a.seeds && !shown(); ++seed) {
    for (uint32_t ranks : a.ranks) {
      const sim::Outcome outcome = sim::run_program(a.options, ranks, seed);
      ++runs;
      calls += outcome.calls;
      turns += outcome.turns;
      if (outcome.failure == sim::Failure::kNone) continue;
      const std::string name = sim::name_of(outcome.failure);
      if (failures[name]++ < 3) {
        std::printf("%s: --program %s --ranks %u --first-seed %llu --seeds 1\n  %s\n", name.c_str(),
                    a.options.program.c_str(), ranks, static_cast<unsigned long long>(seed),
                    outcome.text.c_str());
      }
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf(
      "%s: %llu runs, seeds %llu to %llu, %llu kernels (%.0f/s), %.1f million turns, %.1f s;",
      a.options.program.c_str(), static_cast<unsigned long long>(runs),
      static_cast<unsigned long long>(a.first_seed),
      static_cast<unsigned long long>(a.first_seed + a.seeds - 1),
      static_cast<unsigned long long>(calls), static_cast<double>(calls) / took.count(),
      static_cast<double>(turns) / 1e6, took.count());
  if (failures.empty()) std::printf(" all right");
  for (const auto& [name, count] : failures) {
    std::printf(" %llu x %s", static_cast<unsigned long long>(count), name.c_str());
  }
  std::printf("\n");
  if (a.expect.empty()) return failures.empty() ? 0 : 1;
  if (shown()) return 0;
  std::printf("expected at least one %s\n", a.expect.c_str());
  return 1;
}
