#include <spdlog/fmt/fmt.h>

#include <set>

#include "tools/bench/sizes.h"
#include "tools/doctor/examine.h"

namespace shunt::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json trial_json(const trial::Outcome& outcome, uint32_t ranks) {
  const bench::Prepared& said = outcome.said;
  Json times = Json::array();
  for (const bench::TimedSize& time : said.times) {
    times.push_back({{"bytes", time.bytes},
                     {"nccl_us", time.nccl_us},
                     {"one_shot_us", time.one_shot_us},
                     {"two_shot_us", time.two_shot_us}});
  }
  return {{"ranks", ranks},
          {"nccl", outcome.results.facts.nccl_version},
          {"nccl_file", outcome.results.facts.real_file},
          {"emulated", outcome.results.facts.emulated()},
          {"on", said.on.value_or(false)},
          {"off_reason", said.off_reason},
          {"placement", said.placement},
          {"cap", said.cap},
          {"cap_source", said.cap_source},
          {"two_shot_from", said.two_shot_from},
          {"times", times},
          {"prepared_ms", said.prepared_ms},
          {"slab_bytes", said.slab_bytes},
          {"host_bytes", said.host_bytes},
          {"shunted", outcome.shunted},
          {"forwarded", outcome.forwarded},
          {"troubles", said.troubles},
          {"failures", outcome.failures},
          {"other_lines", outcome.other_lines}};
}

void report_verdict(Report& report, const bench::Prepared& said) {
  if (!*said.on) {
    report.fine("off: " + said.off_reason);
    return;
  }
  report.fine(fmt::format("on, {}, cap {} bytes{}, {}", said.placement, said.cap,
                          said.cap_source.empty() ? "" : " (" + said.cap_source + ")",
                          said.two_shot_from == 0
                              ? "one shot"
                              : fmt::format("two shots from {} bytes", said.two_shot_from)));
  report.fine(fmt::format(
      "prepared in {:.0f} ms; each rank takes {:.1f} MiB of its GPU and {:.1f} MiB of host memory",
      said.prepared_ms, static_cast<double>(said.slab_bytes) / (1 << 20),
      static_cast<double>(said.host_bytes) / (1 << 20)));
}

void report_times(Report& report, const bench::Prepared& said) {
  if (said.times.empty()) return;
  report.fine(fmt::format("{:>10} {:>12} {:>12} {:>13}", "bytes", "NCCL us", "one shot us",
                          "two shots us"));
  for (const bench::TimedSize& time : said.times) {
    report.fine(fmt::format("{:>10} {:>12.2f} {:>12.2f} {:>13.2f}", bench::bytes_text(time.bytes),
                            time.nccl_us, time.one_shot_us, time.two_shot_us));
  }
}

// Each once: all ranks may say the same, and of settings it has been said.
void report_troubles(Report& report, const bench::Prepared& said, bool p2p_offered) {
  const std::vector<std::string> known = report.all_broken();
  std::set<std::string> seen(known.begin(), known.end());
  for (const std::string& trouble : said.troubles) {
    if (!seen.insert(trouble).second) continue;
    // Where the next placement fails too, that is a line of its own.
    const bool expected = !p2p_offered && trouble.find(" does not work: ") != std::string::npos;
    expected ? report.note(trouble) : report.broken(trouble);
  }
}

}  // namespace

void examine_trial(Report& report, const trial::Outcome& outcome, const TrialContext& context) {
  const bench::Prepared& said = outcome.said;
  const bench::Facts& facts = outcome.results.facts;
  report.section(fmt::format("A communicator of {} ranks, its cap measured", context.ranks));
  report.data["communicator"] = trial_json(outcome, context.ranks);
  if (!facts.nccl_version.empty())
    report.fine(fmt::format("NCCL {}, {}", facts.nccl_version, facts.real_file));
  if (facts.emulated()) report.note("the GPUs are emulated: the times mean nothing");
  if (said.on) report_verdict(report, said);
  report_times(report, said);
  report_troubles(report, said, context.p2p_offered);
  for (const std::string& failure : outcome.failures) report.broken(failure);
  if (outcome.failures.empty()) {
    report.fine(fmt::format(
        "{} calls checked: all right; counted as {} shunted, {} forwarded, as the cap says",
        outcome.shunted + outcome.forwarded, outcome.shunted, outcome.forwarded));
  } else {
    for (const std::string& line : outcome.other_lines) report.fine("| " + line);
  }
  if (context.cap_setting != nullptr) {
    report.fine(fmt::format("(jobs here have SHUNT_CAP={})", context.cap_setting));
  }
}

}  // namespace shunt::doctor
