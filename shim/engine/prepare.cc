#include "shim/engine/prepare.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "shim/engine/gather.h"
#include "shim/engine/known_gpus.h"
#include "shim/engine/log.h"
#include "shim/engine/measure.h"
#include "shim/engine/probe.h"
#include "shim/engine/probe_marker.h"
#include "shim/engine/process_settings.h"
#include "shim/engine/profile_cap.h"

namespace shunt {
namespace {

uint64_t random_word() {
  uint64_t word = 0;
  while (getrandom(&word, sizeof(word), 0) != sizeof(word)) {
  }
  return word | 1;
}

// What is the same for all communicators of this process. A forked child has another pid, so it asks anew.
void fill_process_facts(Facts& facts) {
  static const uint64_t nonce = random_word();
  facts.magic = kRecordMagic;
  facts.version = kRecordVersion;
  facts.process_nonce = nonce ^ static_cast<uint64_t>(getpid()) << 32;
  facts.pid = getpid();
  struct stat ns{};
  if (stat("/proc/self/ns/pid", &ns) == 0) facts.pid_namespace = ns.st_ino;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  boot.getline(facts.boot_id, sizeof(facts.boot_id));
  facts.fresh_id = random_word();
}

void fill_settings_facts(Facts& facts) {
  const Settings& settings = process_settings();
  facts.enable = settings.enable == Enable::on    ? EnableFact::kOn
                 : settings.enable == Enable::off ? EnableFact::kOff
                                                  : EnableFact::kAuto;
  if (settings.cap.has_value() && *settings.cap == 0) facts.enable = EnableFact::kOff;
  facts.cap = settings.cap_measured ? kMeasuredCap : settings.cap.value_or(0);
  facts.verify = settings.verify;
  facts.p2p_disabled = p2p_disabled_now() ? 1 : 0;
  switch (settings.placement) {
    case PlacementChoice::automatic: facts.placement = kAnyPlacement; break;
    case PlacementChoice::push: facts.placement = static_cast<uint32_t>(Placement::kPush); break;
    case PlacementChoice::pull: facts.placement = static_cast<uint32_t>(Placement::kPull); break;
    case PlacementChoice::host: facts.placement = static_cast<uint32_t>(Placement::kHost); break;
  }
}

constexpr Answer kYes{1, 0, 0, 0, -1, 0, {}};

// All rounds for one communicator.
class Preparation {
 public:
  explicit Preparation(std::span<const std::shared_ptr<Communicator>> comms) : comms_(comms) {}

  ncclResult_t run();

 private:
  void open_locals();
  std::vector<Facts> gather_facts(Gatherer& gatherer);
  void make_sets(std::vector<SlabOffer>& mine);
  std::vector<Answer> fresh_answers() const {
    return std::vector<Answer>(locals_.size(), kYes);
  }
  void answer_links(std::span<const Facts> facts, const ProbeResets& resets, std::span<Answer> mine) const;
  void warn_of_reset(const ProbeResets& resets) const;
  void negotiate(Gatherer& gatherer);
  bool try_placement(Gatherer& gatherer);
  bool reuse_set();
  KnownCap known_cap() const;
  void find_cap(Gatherer& gatherer);
  void give_up_sets();
  void conclude(Gatherer& gatherer);
  void announce() const;

  std::span<const std::shared_ptr<Communicator>> comms_;
  std::vector<LocalRank> locals_;
  std::vector<std::string> errors_;  // of each local, before the first round
  std::vector<Facts> facts_;
  Verdict verdict_;
  bool mapped_ = false;      // peers may have mapped our slabs
  bool unfinished_ = false;  // a round has not ended
  uint32_t calls_ = 0;
  Clock::time_point start_ = Clock::now();
  double seconds_ = 0;
};

void Preparation::open_locals() {
  locals_.resize(comms_.size());
  errors_.resize(comms_.size());
  const auto ranks = static_cast<size_t>(comms_[0]->ranks());
  for (size_t i = 0; i < comms_.size(); ++i) {
    LocalRank& local = locals_[i];
    local.communicator = comms_[i].get();
    // Without these two there is no way to say no: NCCL's own initialisation would have failed too.
    local.device = &gpu_device(comms_[i]->device());
    local.stream = std::make_unique<PrivateStream>(*local.device);
    local.scratch =
        std::make_unique<Scratch>(*local.device, ranks * Gatherer::kMaxRecord, true);
    try {
      load_kernels(*local.device);
      comms_[i]->open();
    } catch (const cu::Error& error) {
      errors_[i] = std::string("kernels: ") + error.what();
    }
  }
}

std::vector<Facts> Preparation::gather_facts(Gatherer& gatherer) {
  std::vector<Facts> mine(locals_.size());
  for (size_t i = 0; i < locals_.size(); ++i) {
    LocalRank& local = locals_[i];
    Facts& facts = mine[i];
    fill_process_facts(facts);
    fill_settings_facts(facts);
    std::memcpy(facts.gpu, local.device->uuid.bytes, sizeof(facts.gpu));
    facts.compute_major = static_cast<uint32_t>(local.device->compute_major);
    facts.compute_minor = static_cast<uint32_t>(local.device->compute_minor);
    facts.max_threads = local.device->limits.max_threads;
    facts.max_lanes = local.device->limits.max_lanes;
    facts.nccl_version = static_cast<uint32_t>(local.communicator->library().version);
    local.reserved = SlabPool::get().reserve(*local.device, local.rank(),
                                             static_cast<uint32_t>(local.communicator->ranks()));
    for (size_t s = 0; s < local.reserved.size(); ++s) {
      try {
        facts.free_set_states[s] = local.reserved[s]->clean_state(local.stream->get());
      } catch (const cu::Error& error) {
        facts.free_set_states[s] = 0;  // not offered
        log_debug("a free slab set: %s", error.what());
      }
      facts.free_sets[s] = facts.free_set_states[s] != 0 ? local.reserved[s]->id() : 0;
    }
    if (!errors_[i].empty()) {
      facts.failed = 1;
      std::memcpy(facts.reason, errors_[i].data(), std::min(errors_[i].size(), kReasonBytes - 1));
    }
  }
  return gatherer.gather<Facts>(mine, "facts");
}

void Preparation::answer_links(std::span<const Facts> facts, const ProbeResets& resets,
                               std::span<Answer> mine) const {
  for (size_t i = 0; i < locals_.size(); ++i) {
    const uint32_t rank = locals_[i].rank();
    bool all = true;
    for (uint32_t peer = 0; peer < facts.size(); ++peer) {
      if (peer == rank) continue;
      const NvLink link = nvlink_between(facts[rank].gpu, facts[peer].gpu);
      all &= link == NvLink::kYes;
      if (link == NvLink::kUnknown && facts[rank].enable != EnableFact::kOn) {
        refuse(mine[i], "NVML does not tell whether NVLink joins the GPUs (SHUNT_ENABLE=on overrides)",
               static_cast<int>(peer));
      }
    }
    mine[i].all_nvlink = all ? 1 : 0;
    mine[i].broken = KnownGpus::get().broken(facts);
    mine[i].reset = resets.placements;
  }
}

// One line a communicator, from a rank that has the file at hand.
void Preparation::warn_of_reset(const ProbeResets& resets) const {
  for (const LocalRank& local : locals_) {
    if (static_cast<int>(local.rank()) != verdict_.reset_rank) continue;
    log_warning("communicator %s: %s", local.communicator->key().c_str(), reset_text(resets).c_str());
  }
}

// Allocates and fills each local's slab before its handle is shown, or takes the set that all agreed on.
void Preparation::make_sets(std::vector<SlabOffer>& mine) {
  for (size_t i = 0; i < locals_.size(); ++i) {
    LocalRank& local = locals_[i];
    SlabOffer& offer = mine[i];
    offer.answer = kYes;
    try {
      local.set = std::make_unique<SlabSet>(*local.device, verdict_.geometry, local.rank(),
                                            local.stream->get());
      local.set->set_id(facts_[0].fresh_id);
      local.set->offer(offer);
    } catch (const cu::Error& error) {
      refuse(offer.answer, error.what());
    }
  }
}

void Preparation::negotiate(Gatherer& gatherer) {
  facts_ = gather_facts(gatherer);
  verdict_ = judge_facts(facts_);
  if (!verdict_.shunt) return;
  gatherer.watch_peers(std::make_unique<PeerProcesses>(facts_, locals_[0].rank()));

  std::vector<Answer> answers = fresh_answers();
  const ProbeResets resets = find_probe_resets(marker_folder(), facts_);
  answer_links(facts_, resets, answers);
  judge_links(verdict_, facts_, gatherer.gather<Answer>(answers, "links"));
  warn_of_reset(resets);
  if (!verdict_.shunt) return;

  while (!try_placement(gatherer)) {
    const Placement failed = verdict_.geometry.placement;
    give_up_sets();
    if (mapped_) KnownGpus::get().add_broken(facts_, failed);
    const std::string why = verdict_.reason;
    if (!next_placement(verdict_)) return;
    if (locals_[0].rank() == 0) {
      log_warning("communicator %s: %s does not work: %s; trying %s", locals_[0].communicator->key().c_str(),
                  name_of(failed), why.c_str(), name_of(verdict_.geometry.placement));
    }
  }
  if (verdict_.measured) find_cap(gatherer);
}

// What an earlier communicator of these GPUs found, else what the profile of this machine says. A rank may have
// measured already where a younger process has not, and files may differ: so it is for all ranks to agree.
KnownCap Preparation::known_cap() const {
  const Placement placement = verdict_.geometry.placement;
  const auto known = [](CapSource source, const Found& found) {
    return KnownCap{source, found.two_shot_from, found.cap};
  };
  if (const auto before = KnownGpus::get().found(facts_, placement)) return known(CapSource::kMeasured, *before);
  const auto profile = cap_of_profile(verdict_.geometry.ranks, locals_[0].communicator->library().version, placement);
  return profile ? known(CapSource::kProfile, *profile) : KnownCap{};
}

void Preparation::find_cap(Gatherer& gatherer) {
  const std::vector<KnownCap> table =
      gatherer.gather<KnownCap>(std::vector<KnownCap>(locals_.size(), known_cap()), "cap");
  std::optional<Found> found = agreed(table);
  verdict_.of_profile = found && std::all_of(table.begin(), table.end(), [](const KnownCap& known) {
    return known.source == CapSource::kProfile;
  });
  if (!found) found = measure(locals_, gatherer, verdict_, calls_);
  if (!found) return;
  // What was not measured here is not remembered as such: a process that comes later reads its own profile.
  if (!verdict_.of_profile) KnownGpus::get().set_found(facts_, verdict_.geometry.placement, *found);
  verdict_.cap = std::min(verdict_.cap, found->cap);
  verdict_.limits.two_shot_from = found->two_shot_from;
  if (found->cap == 0) {
    verdict_.shunt = false;
    verdict_.level = Level::kInfo;
    verdict_.reason = verdict_.of_profile ? "NCCL is faster at every size (of the profile)"
                                          : "NCCL is faster at every size";
    // Nothing is wrong with the sets: the next communicator need not make and probe others.
    for (LocalRank& local : locals_) SlabPool::get().give(std::move(local.set));
  }
}

// Whether the set that all hold free fits: then nothing is left to be done.
bool Preparation::reuse_set() {
  for (const uint64_t id : verdict_.free_sets) {
    const auto has_id = [&](const std::unique_ptr<SlabSet>& set) { return set != nullptr && set->id() == id; };
    const auto find = [&](LocalRank& local) {
      return std::find_if(local.reserved.begin(), local.reserved.end(), has_id);
    };
    // Sets of one id are alike on all ranks, so all ranks see the same difference.
    if ((*find(locals_[0]))->geometry() != verdict_.geometry) continue;
    for (LocalRank& local : locals_) local.set = std::move(*find(local));
    verdict_.reused_set = id;
    return true;
  }
  return false;
}

bool Preparation::try_placement(Gatherer& gatherer) {
  mapped_ = false;
  if (reuse_set()) return true;

  std::vector<SlabOffer> offers(locals_.size());
  make_sets(offers);
  const std::vector<SlabOffer> offered = gatherer.gather<SlabOffer>(offers, "memory");
  judge_offers(verdict_, offered);
  if (!verdict_.shunt) return false;

  mapped_ = true;
  // Before the round that the probe comes after: a slow disk must not look like a slow peer.
  const ProbeMarker marker(marker_folder(), record_of(facts_, verdict_.geometry.placement));
  std::vector<Answer> answers = fresh_answers();
  for (size_t i = 0; i < locals_.size(); ++i) {
    int peer = -1;
    try {
      locals_[i].set->map_peers(facts_, offered, peer);
    } catch (const cu::Error& error) {
      refuse(answers[i], error.what(), peer);
    }
  }
  judge_answers(verdict_, gatherer.gather<Answer>(answers, "mapping"), "mapping");
  for (LocalRank& local : locals_) local.set->seal();
  if (!verdict_.shunt) return false;

  answers = fresh_answers();
  probe(locals_, verdict_, answers, calls_);
  judge_answers(verdict_, gatherer.gather<Answer>(answers, "probe"), "probe");
  return verdict_.shunt;
}

// A peer may have mapped a set, and late writes may still arrive: then it is kept for ever, used by nobody.
void Preparation::give_up_sets() {
  for (LocalRank& local : locals_) {
    if (local.set != nullptr && !mapped_ && !unfinished_) local.set->free_unmapped();
    (void)local.set.release();
  }
}

void Preparation::announce() const {
  // One line a communicator: from rank 0, and of a failure also where it happened to be seen first.
  for (const LocalRank& local : locals_) {
    if (local.rank() != 0) continue;
    const char* key = local.communicator->key().c_str();
    const int ranks = local.communicator->ranks();
    if (verdict_.shunt) {
      log_info("communicator %s of %d ranks: on, %s, cap %llu bytes%s", key, ranks,
               name_of(verdict_.geometry.placement), static_cast<unsigned long long>(verdict_.cap),
               verdict_.of_profile  ? " (of the profile)"
               : verdict_.measured  ? " (measured)"
               : verdict_.differing ? " (the smallest; settings differ between ranks)"
                                    : "");
      const uint32_t two_shot_from = verdict_.limits.two_shot_from;
      log_debug("communicator %s: %u lanes of %u threads, %s, %zu bytes a slab, %zu in host memory%s, prepared in %.1f ms",
                key, verdict_.geometry.lanes, verdict_.limits.max_threads,
                two_shot_from == ~0u ? "one shot" : format("two shots from %u bytes", two_shot_from).c_str(),
                verdict_.geometry.slab_bytes(), verdict_.geometry.host_bytes(),
                verdict_.reused_set != 0 ? " (reused)" : "", seconds_ * 1e3);
    } else {
      (verdict_.level == Level::kWarning ? log_warning : log_info)(
          "communicator %s of %d ranks: off: %s", key, ranks, verdict_.reason.c_str());
    }
  }
}

void Preparation::conclude(Gatherer& gatherer) {
  seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
  announce();
  if (!verdict_.shunt) give_up_sets();
  for (LocalRank& local : locals_) {
    for (auto& set : local.reserved) {
      if (set != nullptr) SlabPool::get().give(std::move(set));
    }
    if (local.set == nullptr) continue;
    std::unique_ptr<PeerProcesses> peers = gatherer.take_peers();
    if (peers == nullptr) peers = std::make_unique<PeerProcesses>(facts_, local.rank());
    auto watch = std::make_shared<Watch>(local.communicator->key(), local.set->board(), local.rank(),
                                         std::move(peers), process_settings().timeout_seconds);
    local.communicator->adopt(verdict_, std::move(local.set), std::move(watch));
  }
}

ncclResult_t Preparation::run() {
  cu::RelaxedCaptureScope relaxed;
  open_locals();
  Gatherer gatherer(locals_);
  ncclResult_t result = ncclSuccess;
  try {
    negotiate(gatherer);
  } catch (const GatherFailed& failed) {
    verdict_.shunt = false;
    // NCCL's all-reduce of the round may still run, until an abort: it writes to the scratch memory, and
    // freeing anything would wait for it.
    unfinished_ = true;
    for (LocalRank& local : locals_) (void)local.scratch.release();
    verdict_.level = Level::kWarning;
    verdict_.reason = "preparing failed on rank " + std::to_string(locals_[0].rank()) + ": " + failed.reason;
    result = failed.result;
    if (locals_[0].rank() != 0) {
      log_warning("communicator %s: off: %s", locals_[0].communicator->key().c_str(),
                  verdict_.reason.c_str());
    }
  }
  conclude(gatherer);
  return result;
}

}  // namespace

ncclResult_t prepare(std::span<const std::shared_ptr<Communicator>> locals) noexcept {
  const Communicator& first = *locals[0];
  try {
    // Known alike to all ranks, so no round is needed to agree on it.
    const char* why = !first.blocking()                              ? "non-blocking communicator"
                      : first.ranks() > static_cast<int>(kMaxRanks) ? "more than 16 ranks"
                      : first.ranks() == 1                           ? "one rank"
                                                                     : nullptr;
    if (why != nullptr) {
      // A communicator that is not ready does not tell its ranks; one rank is no news.
      if (!first.blocking()) {
        log_info("communicator %s: off: %s", first.key().c_str(), why);
      } else if (first.rank() == 0) {
        (first.ranks() == 1 ? log_debug : log_info)("communicator %s of %d ranks: off: %s",
                                                    first.key().c_str(), first.ranks(), why);
      }
      return ncclSuccess;
    }
    return Preparation(locals).run();
  } catch (const cu::Error& error) {
    // No driver, or one that lacks a function: the same on every rank of this machine, so nobody waits.
    const bool driver = error.code == -1;
    log_warning("communicator %s: off: preparing failed: %s", first.key().c_str(), error.what());
    return driver ? ncclSuccess : ncclUnhandledCudaError;
  } catch (const std::exception& error) {
    log_error("communicator %s: preparing failed: %s", first.key().c_str(), error.what());
    return ncclSystemError;
  }
}

}  // namespace shunt
