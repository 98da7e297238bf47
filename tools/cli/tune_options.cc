#include "tools/cli/tune_options.h"

#include <stdexcept>

#include "tools/bench/sizes.h"
#include "tools/bench/text.h"
#include "tools/cli/tune_command.h"

namespace shunt::cli {
namespace {

std::vector<tune::Collective> collectives_of(const std::string& text) {
  std::vector<tune::Collective> result;
  for (const std::string& name : bench::split(text, ',')) {
    bool known = false;
    for (const tune::Collective collective : tuner::kCollectives) {
      if (name != name_of(collective)) continue;
      result.push_back(collective);
      known = true;
    }
    if (!known) throw std::invalid_argument("\"" + name + "\" is no collective that is tuned");
  }
  return result;
}

}  // namespace

struct TuneOptions::Texts {
  uint32_t ranks = 2;
  std::string devices, collectives = "all-reduce,all-gather,reduce-scatter";
  std::string min = "8", max = "256M", output, unsafe_words, show;
  double seconds = 60, margin = 3;
  std::vector<std::string> diff;
};

TuneOptions::TuneOptions(CLI::App& app, std::string commit)
    : commit_(std::move(commit)), texts_(std::make_unique<Texts>()) {
  app_ = app.add_subcommand(
      "tune", "Measure NCCL's algorithms and write a profile for libnccl-tuner-shunt.so");
  Texts& t = *texts_;
  app_->add_option("--ranks", t.ranks, "Number of ranks, a GPU each (2)");
  app_->add_option("--devices", t.devices, "GPU of each rank, e.g. 0,1 (the rank)");
  app_->add_option("--collectives", t.collectives, "What to measure (" + t.collectives + ")");
  app_->add_option("--min", t.min, "Smallest size in bytes (8)");
  app_->add_option("--max", t.max, "Largest size in bytes (256M)");
  app_->add_option("--seconds", t.seconds, "Time for measuring (60)")->check(CLI::Range(1, 36000));
  app_->add_option("--margin", t.margin,
                   "Gains of fewer percent than this are left to NCCL's own choice (3)")
      ->check(CLI::Range(0, 90));
  app_->add_option("--output", t.output, "File to write (the user's cache)");
  app_->add_option(
      "--allow-unsafe-ll128", t.unsafe_words,
      "Also measure and use the protocol LL128 where NCCL rules it out, because 128-byte "
      "stores may arrive in parts: sums can then be wrong without a word. Takes your "
      "reason, which is kept in the profile and logged");
  auto* show = app_->add_option("--show", t.show, "Print a profile, measure nothing");
  app_->add_option("--diff", t.diff, "Compare two profiles, measure nothing")
      ->expected(2)
      ->excludes(show);
}

TuneOptions::~TuneOptions() = default;

bool TuneOptions::parsed() const { return app_->parsed(); }

int TuneOptions::run() const {
  const Texts& t = *texts_;
  if (!t.show.empty()) return show_profile(t.show);
  if (!t.diff.empty()) return diff_profiles(t.diff[0], t.diff[1]);
  TuneRequest request;
  request.plan = {collectives_of(t.collectives),
                  bench::parse_bytes(t.min),
                  bench::parse_bytes(t.max),
                  t.ranks,
                  t.seconds,
                  t.margin / 100,
                  !t.unsafe_words.empty()};
  if (app_->count("--allow-unsafe-ll128") > 0 && t.unsafe_words.size() < 10) {
    throw std::invalid_argument("--allow-unsafe-ll128 takes a reason, in words");
  }
  request.unsafe_words = t.unsafe_words;
  request.output = t.output;
  request.commit = commit_;
  if (!t.devices.empty()) {
    for (const std::string& device : bench::split(t.devices, ',')) {
      request.devices.push_back(static_cast<uint32_t>(bench::parse_number(device)));
    }
  }
  return tune_machine(request);
}

}  // namespace shunt::cli
