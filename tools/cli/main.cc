// The command `nccl-shunt`. This file knows the command line and nothing else.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "tools/bench/text.h"
#include "tools/cli/bench_command.h"
#include "tools/cli/compare_command.h"
#include "tools/cli/doctor_command.h"
#include "tools/cli/preload.h"
#include "tools/cli/tune_options.h"

namespace shunt::cli {
namespace {

// Texts that the library of command lines hands over, before they are parsed.
struct BenchTexts {
  std::string sizes = "8,256,4K,8K,16K,32K,64K,128K,256K,512K,1M,4M";
  std::string min, max;
  double factor = 2;
  std::string types = "bfloat16", ops = "sum", places = "out,in", modes = "eager,graph";
  std::string devices, cold, expect, data = "random";
  bool threads = false, one_thread = false;
};

void add_options(CLI::App& app, BenchRequest& request, BenchTexts& texts) {
  bench::Options& o = request.options;
  app.add_option("--ranks", o.ranks, "Number of ranks (2)")->group("Ranks");
  auto* threads = app.add_flag("--threads", texts.threads, "One process, a thread for each GPU");
  auto* one =
      app.add_flag("--one-thread", texts.one_thread, "One thread drives all GPUs in groups");
  threads->excludes(one)->group("Ranks");
  one->group("Ranks");
  app.add_option("--devices", texts.devices, "GPU of each rank, e.g. 0,1 (the rank)")
      ->group("Ranks");

  auto* sizes = app.add_option("--sizes", texts.sizes,
                               "Sizes: 8,4K,1M are bytes, 7e is 7 elements (" + texts.sizes + ")");
  auto* min = app.add_option("--min", texts.min, "Sizes from here ...");
  auto* max = app.add_option("--max", texts.max, "... to here ...");
  auto* factor = app.add_option("--factor", texts.factor, "... by this factor (2)");
  min->needs(max)->excludes(sizes);
  max->needs(min);
  factor->needs(min);
  app.add_option("--types", texts.types, "Datatypes, e.g. half,bfloat16,float, or all (bfloat16)");
  app.add_option("--ops", texts.ops, "Operations: sum,prod,max,min,avg, or all (sum)");
  app.add_option("--places", texts.places, "out of place, in place (out,in)");
  app.add_option("--modes", texts.modes, "eager, replayed from a graph (eager,graph)");
  for (const char* name :
       {"--sizes", "--min", "--max", "--factor", "--types", "--ops", "--places", "--modes"}) {
    app.get_option(name)->group("Calls");
  }

  app.add_flag("--check,!--no-check", o.check, "Compare every element (on)")->group("Checks");
  app.add_option("--iters", o.iterations, "Checked calls of each case, with new data (3)")
      ->group("Checks");
  app.add_option("--data", texts.data, "random, or exact: sums that need no rounding (random)")
      ->check(CLI::IsMember({"random", "exact"}))
      ->group("Checks");
  app.add_option("--seed", o.seed, "Of the data (1)")->group("Checks");
  app.add_flag("--misalign", o.misalign, "Pointers at element alignment that differ between ranks")
      ->group("Checks");
  app.add_option("--expect-shunted-up-to", texts.expect,
                 "Fail unless exactly the calls up to this size were shunted")
      ->group("Checks");

  app.add_flag("--time,!--no-time", o.time, "Measure times (on)")->group("Times");
  app.add_option("--graph-calls", o.graph_calls, "Calls in a graph (50)")->group("Times");
  app.add_option("--warmups", o.warmups, "Replays that are not counted (2)")->group("Times");
  app.add_option("--replays", o.replays, "Replays that are counted (7)")->group("Times");
  app.add_option("--eager-calls", o.eager_calls, "Eager calls (200)")->group("Times");
  app.add_flag("--alternate", o.alternate, "Measure NCCL, shunt, NCCL, shunt: shows drift")
      ->group("Times");
  app.add_option("--cold", texts.cold,
                 "Rotate buffers through this much memory and flush it before each replay")
      ->group("Times");

  app.add_flag("--preload,!--no-preload", request.preload, "Preload libnccl-shunt.so (on)")
      ->group("Run");
  app.add_option("--timeout", request.timeout_s, "Seconds for the whole job (120)")->group("Run");
  app.add_option("--json", request.json_file, "Write everything to this file")->group("Run");
  app.add_option("--commit", request.commit, "Commit to name in that file (" SHUNT_COMMIT ")")
      ->group("Run");
}

void parse_texts(const BenchTexts& texts, bench::Options& o) {
  if (texts.threads) o.launch = bench::Launch::kThreads;
  if (texts.one_thread) o.launch = bench::Launch::kOneThread;
  o.sizes = texts.min.empty() ? bench::parse_sizes(texts.sizes)
                              : bench::sweep(bench::parse_bytes(texts.min),
                                             bench::parse_bytes(texts.max), texts.factor);
  o.types = bench::parse_types(texts.types);
  o.ops = bench::parse_ops(texts.ops);
  o.places = bench::parse_places(texts.places);
  o.modes = bench::parse_modes(texts.modes);
  if (texts.data == "exact") o.data = bench::Data::kExact;
  if (!texts.cold.empty()) o.cold_bytes = bench::parse_bytes(texts.cold);
  if (!texts.expect.empty()) o.expect_shunted_up_to = bench::parse_bytes(texts.expect);
  if (texts.devices.empty()) return;
  for (const std::string& device : bench::split(texts.devices, ',')) {
    o.devices.push_back(static_cast<uint32_t>(bench::parse_number(device)));
  }
}

// `run` is not parsed: all that follows belongs to the program.
int run_arguments(char** arguments) {
  if (*arguments != nullptr && std::strcmp(*arguments, "--") == 0) ++arguments;
  if (*arguments == nullptr) {
    std::fprintf(
        stderr,
        "nccl-shunt run: no program given; usage: nccl-shunt run [--] PROGRAM [ARGUMENTS]\n");
    return 125;
  }
  return run(arguments);
}

int main_checked(int argc, char** argv) {
  if (argc >= 2 && std::strcmp(argv[1], "run") == 0) {
    const bool help =
        argc == 3 && (std::strcmp(argv[2], "--help") == 0 || std::strcmp(argv[2], "-h") == 0);
    if (!help) return run_arguments(argv + 2);
  }
  CLI::App app("nccl-shunt: a faster path for small NCCL all-reduces on one node");
  app.require_subcommand(1);
  CLI::App* run_app = app.add_subcommand(
      "run",
      "Run a program with libnccl-shunt.so preloaded: nccl-shunt run [--] PROGRAM [ARGUMENTS]");
  CLI::App* bench_app =
      app.add_subcommand("bench", "Check and time NCCL's all-reduce with and without the library");
  BenchRequest request;
  request.commit = SHUNT_COMMIT;
  BenchTexts texts;
  add_options(*bench_app, request, texts);
  CLI::App* compare_app =
      app.add_subcommand("compare", "Compare two results of `nccl-shunt bench --json`");
  std::vector<std::string> results;
  compare_app->add_option("results", results, "A.json B.json")->expected(2)->required();
  const TuneOptions tune_options(app, SHUNT_COMMIT);
  const DoctorCommand doctor(app, SHUNT_COMMIT);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;  // 0: --help
  }
  if (run_app->parsed()) return run_arguments(argv + argc);
  if (doctor.parsed()) return doctor.run();
  if (compare_app->parsed()) return compare(results[0], results[1]);
  if (tune_options.parsed()) return tune_options.run();
  parse_texts(texts, request.options);
  return bench(request);
}

}  // namespace
}  // namespace shunt::cli

int main(int argc, char** argv) {
  try {
    return shunt::cli::main_checked(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl-shunt: %s\n", error.what());
    return 2;
  }
}
