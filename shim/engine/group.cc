#include "shim/engine/group.h"

#include <algorithm>
#include <map>

#include "shim/engine/log.h"
#include "shim/engine/prepare.h"
#include "shim/engine/registry.h"

namespace shunt {

Group& Group::of(const NcclLibrary& library) {
  thread_local Group groups[kMaxLibraries];
  return groups[library.slot];
}

ncclResult_t Group::start(NcclLibrary& library) {
  const ncclResult_t result = library.call<k_ncclGroupStart>();
  if (result == ncclSuccess) ++depth_;
  return result;
}

void Group::add_use(Communicator& communicator, cu::Stream stream) {
  const bool known = std::any_of(uses_.begin(), uses_.end(), [&](const Use& use) {
    return use.communicator == &communicator && use.stream == stream;
  });
  if (!known) uses_.push_back({&communicator, stream});
}

void Group::queue(Communicator& communicator, const AllReduceCall& call) {
  add_use(communicator, call.stream);
  const auto same = [&](cu::Device device) { return device == communicator.device(); };
  shunted_.push_back({&communicator, call, forwards(communicator),
                      std::any_of(forwarded_on_.begin(), forwarded_on_.end(), same)});
}

bool Group::forwards(const Communicator& communicator) const {
  return std::any_of(forwarded_.begin(), forwarded_.end(),
                     [&](const Use& use) { return use.communicator == &communicator; });
}

// A communicator's own order first, since all of its ranks have it: what comes before a forwarded operation
// of the same communicator runs before NCCL's group, and so does whatever comes before that; what comes
// behind one runs behind it. The rest keeps the order of the calls on its device.
void Group::place_shunted() {
  std::vector<cu::Device> must;  // devices on which a later call is before NCCL's group for its own order
  for (auto shunted = shunted_.rbegin(); shunted != shunted_.rend(); ++shunted) {
    const cu::Device device = shunted->communicator->device();
    if (!shunted->behind_own && forwards(*shunted->communicator)) must.push_back(device);
    const bool pulled = std::find(must.begin(), must.end(), device) != must.end();
    shunted->first = !shunted->behind_own && (pulled || !shunted->behind_others);
  }
}

void Group::note_forwarded(Communicator* communicator, cu::Stream stream, StreamOrder::By by,
                           ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress) {
    note_failure(result);
    return;
  }
  if (communicator == nullptr) return;
  // Alone in its communicator it waits for nobody. (One that is not blocking does not tell its ranks.)
  if (communicator->ranks() > 1 || !communicator->blocking()) {
    forwarded_on_.push_back(communicator->device());
  }
  if (!communicator->shunting()) return;
  add_use(*communicator, stream);
  forwarded_.push_back({communicator, stream, by});
}

// NCCL joins all streams of a communicator in a group: each operation of the group follows what was on any
// of them, and what comes later on any of them follows the whole group.
template <typename F>
ncclResult_t Group::for_shared_streams(F&& action) {
  ncclResult_t result = ncclSuccess;
  for (const Use& use : uses_) {
    const auto streams = std::count_if(uses_.begin(), uses_.end(), [&](const Use& other) {
      return other.communicator == use.communicator;
    });
    if (streams > 1 && result == ncclSuccess) result = action(*use.communicator, use.stream);
  }
  return result;
}

ncclResult_t Group::run_shunted(bool first, Verifications& due) {
  ncclResult_t result = ncclSuccess;
  for (const Shunted& shunted : shunted_) {
    if (shunted.first == first && result == ncclSuccess) {
      result = shunted.communicator->all_reduce(shunted.call, due);
    }
  }
  return result;
}

ncclResult_t Group::finish_forwarded() {
  ncclResult_t result = ncclSuccess;
  for (const Use& use : forwarded_) {
    const bool all = std::all_of(forwarded_.begin(), forwarded_.end(), [&](const Use& other) {
      return other.communicator != use.communicator || other.by == StreamOrder::By::kNcclAll;
    });
    const auto by = all ? StreamOrder::By::kNcclAll : StreamOrder::By::kNccl;
    if (result == ncclSuccess) result = use.communicator->extend(use.stream, by);
  }
  return result;
}

void Group::clear() {
  failed_ = ncclSuccess;
  forwarded_on_.clear();
  shunted_.clear();
  forwarded_.clear();
  uses_.clear();
  makers_.clear();
}

ncclResult_t Group::end(NcclLibrary& library) {
  if (depth_ != 1) {
    const ncclResult_t result = library.call<k_ncclGroupEnd>();
    if (depth_ > 0) --depth_;
    return result;
  }
  depth_ = 0;
  // An error inside the group cancels what was queued; NCCL's End says which.
  const ncclResult_t failed = failed_;
  const bool cancelled = failed != ncclSuccess;
  const auto gather = [](Communicator& communicator, cu::Stream stream) {
    return communicator.extend(stream, StreamOrder::By::kShunt);  // no operation of NCCL's
  };
  const auto spread = [](Communicator& communicator, cu::Stream stream) { return communicator.join(stream); };
  ncclResult_t ours = cancelled ? ncclSuccess : for_shared_streams(gather);
  // In the order of the user's calls as far as NCCL's group, which cannot be split, allows: another rank may
  // make the same calls outside a group, and then waits for them in that order. Device by device: one
  // thread's group holds the calls of several ranks, one rank's after the other's.
  place_shunted();
  Verifications due;
  if (!cancelled && ours == ncclSuccess) ours = run_shunted(true, due);
  const ncclResult_t theirs = library.call<k_ncclGroupEnd>();
  const bool ended = theirs == ncclSuccess || theirs == ncclInProgress;
  if (!cancelled && ended && ours == ncclSuccess) {
    ours = finish_forwarded();
    if (ours == ncclSuccess) ours = run_shunted(false, due);
    if (ours == ncclSuccess) ours = for_shared_streams(spread);
    if (ours == ncclSuccess && !due.empty()) ours = verify(due);
  }
  std::vector<Maker> makers = std::move(makers_);
  clear();
  if (!ended) return theirs;
  if (cancelled) return failed;  // an error that NCCL has not seen
  if (theirs == ncclInProgress) {
    for (Maker& maker : makers) maker.blocking = false;
  }
  if (ours == ncclSuccess && !makers.empty()) ours = finish_makers(library, makers);
  return ours != ncclSuccess ? ours : theirs;
}

ncclResult_t finish_makers(NcclLibrary& library, const std::vector<Maker>& makers) {
  std::map<std::string, std::vector<std::shared_ptr<Communicator>>> by_key;
  for (const Maker& maker : makers) {
    if (maker.out == nullptr || *maker.out == nullptr) continue;
    auto communicator =
        std::make_shared<Communicator>(library, *maker.out, maker.key, maker.blocking);
    Registry::get().add(communicator);
    by_key[maker.key].push_back(std::move(communicator));
  }
  ncclResult_t result = ncclSuccess;
  for (const auto& [key, locals] : by_key) {
    if (result == ncclSuccess) result = prepare(locals);
  }
  return result;
}

}  // namespace shunt
