#include "shim/engine/group.h"

#include <algorithm>
#include <map>

#include "shim/engine/call_count.h"
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

// NCCL's rule: the streams of a communicator in a group are all captured by one graph, or none is.
ncclResult_t Group::add_use(Communicator& communicator, cu::Stream stream) {
  const Use* other = nullptr;
  for (const Use& use : uses_) {
    if (use.communicator != &communicator) continue;
    if (use.stream == stream) return ncclSuccess;
    other = &use;
  }
  if (other != nullptr && !communicator.same_capture(stream, other->stream)) {
    log_error(
        "communicator %s: streams in a group must all be captured by the same graph, or none of "
        "them",
        communicator.key().c_str());
    return ncclInvalidUsage;
  }
  uses_.push_back({&communicator, stream});
  return ncclSuccess;
}

Group::Sum& Group::sum_of(Communicator& communicator) {
  for (Sum& sum : sums_) {
    if (sum.communicator == &communicator) return sum;
  }
  keep(communicator);
  return sums_.emplace_back(Sum{&communicator, 0, false});
}

void Group::keep(Communicator& communicator) {
  const bool known = std::any_of(kept_.begin(), kept_.end(),
                                 [&](const auto& kept) { return kept.get() == &communicator; });
  if (!known) kept_.push_back(communicator.shared_from_this());
}

bool Group::broken(const Communicator& communicator) const {
  return std::find(broken_.begin(), broken_.end(), &communicator) != broken_.end();
}

void Group::note(const Communicator& communicator, ncclResult_t result) {
  if (result == ncclSuccess) return;
  if (ours_ == ncclSuccess) ours_ = result;
  if (!broken(communicator)) broken_.push_back(&communicator);
}

ncclResult_t Group::all_reduce(NcclLibrary& library, Communicator& communicator,
                               const AllReduceCall& call) {
  const int type = static_cast<int>(call.type), op = static_cast<int>(call.op);
  const uint64_t cap = communicator.verdict().cap;
  Sum& sum = sum_of(communicator);
  const bool known = type >= 0 && type < static_cast<int>(kDataTypes);
  sum.bytes += call.count > cap ? cap + 1 : call.count * (known ? size_of(call.type) : 1);
  if (sum.bytes > cap && !sum.forwards) {
    sum.forwards = true;
    const ncclResult_t result = forward_queued(library, communicator);
    if (result != ncclSuccess && result != ncclInProgress) return result;
  }
  if (sum.forwards || !communicator.accepts(call.count, type, op)) {
    return forward_all_reduce(library, communicator, call);
  }
  if (const ncclResult_t result = add_use(communicator, call.stream); result != ncclSuccess) {
    note_failure(result);
    return result;
  }
  const auto same = [&](cu::Device device) { return device == communicator.device(); };
  queued_.push_back({&communicator, call, forwards(communicator),
                     std::any_of(forwarded_on_.begin(), forwarded_on_.end(), same), 0});
  return ncclSuccess;
}

ncclResult_t Group::forward_all_reduce(NcclLibrary& library, Communicator& communicator,
                                       const AllReduceCall& call) {
  const auto type = static_cast<ncclDataType_t>(call.type);
  const auto op = static_cast<ncclRedOp_t>(call.op);
  count_call(&communicator, call.count, type, op, false);
  const auto by = call.count > 0 ? StreamOrder::By::kNcclAll : StreamOrder::By::kNccl;
  return forward(&communicator, call.stream, by, [&] {
    return library.call<k_ncclAllReduce>(call.send, call.recv, call.count, type, op,
                                         communicator.handle(),
                                         static_cast<cudaStream_t>(call.stream));
  });
}

// NCCL gets them in the order of the calls. A call of another communicator that came behind one of
// them is now behind a forwarded operation.
ncclResult_t Group::forward_queued(NcclLibrary& library, Communicator& communicator) {
  ncclResult_t result = ncclSuccess;
  bool behind = false;
  std::vector<Queued> kept;
  for (Queued& queued : queued_) {
    if (queued.communicator != &communicator) {
      queued.behind_others |= behind && queued.communicator->device() == communicator.device();
      kept.push_back(queued);
      continue;
    }
    behind = true;
    if (result == ncclSuccess || result == ncclInProgress) {
      result = forward_all_reduce(library, communicator, queued.call);
    }
  }
  queued_ = std::move(kept);
  return result;
}

bool Group::forwards(const Communicator& communicator) const {
  return std::any_of(forwarded_.begin(), forwarded_.end(),
                     [&](const Use& use) { return use.communicator == &communicator; });
}

// A pure function of each communicator's calls, so that all of its ranks get the same kernels.
void Group::fuse() {
  kernels_.clear();
  for (Queued& queued : queued_) {
    const Communicator& communicator = *queued.communicator;
    const Protocol protocol = protocol_of(queued.call.type);
    const uint32_t packets = packets_for(protocol, queued.call.count * size_of(queued.call.type));
    const uint32_t most = packets_for(protocol, communicator.verdict().cap);
    const auto fits = [&](const Kernel& kernel) {
      return kernel.first_call->communicator == &communicator &&
             kernel.first_call->call.type == queued.call.type &&
             kernel.first_call->call.op == queued.call.op && kernel.count < kMaxMessages &&
             kernel.packets + packets <= most;
    };
    auto kernel = std::find_if(kernels_.begin(), kernels_.end(), fits);
    if (kernel == kernels_.end()) kernel = kernels_.insert(kernel, Kernel{&queued, 0, 0, 0});
    kernel->packets += packets;
    ++kernel->count;
    queued.kernel = static_cast<size_t>(kernel - kernels_.begin());
  }
  size_t begin = 0;
  for (Kernel& kernel : kernels_) {
    kernel.begin = begin;
    begin += kernel.count;
    kernel.count = 0;
  }
  calls_.resize(queued_.size());
  for (const Queued& queued : queued_) {
    Kernel& kernel = kernels_[queued.kernel];
    calls_[kernel.begin + kernel.count++] = queued.call;
  }
}

// A communicator's own order first, since all of its ranks have it: what comes before a forwarded
// operation of the same communicator runs before NCCL's group, and so does whatever comes before
// that; what comes behind one runs behind it. The rest keeps the order of the calls on its device.
void Group::place_kernels() {
  std::vector<cu::Device>
      must;  // devices on which a later call is before NCCL's group for its own order
  for (auto kernel = kernels_.rbegin(); kernel != kernels_.rend(); ++kernel) {
    const Queued& call = *kernel->first_call;
    const cu::Device device = call.communicator->device();
    if (!call.behind_own && forwards(*call.communicator)) must.push_back(device);
    const bool pulled = std::find(must.begin(), must.end(), device) != must.end();
    kernel->first = !call.behind_own && (pulled || !call.behind_others);
  }
}

void Group::note_forwarded(Communicator* communicator, cu::Stream stream, StreamOrder::By by,
                           ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress) {
    note_failure(result);
    return;
  }
  if (communicator == nullptr) return;
  // Alone in its communicator it waits for nobody. (One that is not blocking does not tell its
  // ranks.)
  if (communicator->ranks() > 1 || !communicator->blocking()) {
    forwarded_on_.push_back(communicator->device());
  }
  if (!communicator->shunting()) return;
  keep(*communicator);
  if (const ncclResult_t used = add_use(*communicator, stream); used != ncclSuccess)
    note_failure(used);
  const auto same = std::find_if(forwarded_.begin(), forwarded_.end(), [&](const Use& use) {
    return use.communicator == communicator && use.stream == stream;
  });
  if (same == forwarded_.end()) {
    forwarded_.push_back({communicator, stream, by});
  } else if (by != StreamOrder::By::kNcclAll) {
    same->by = by;
  }
}

// NCCL joins all streams of a communicator in a group: each operation of the group follows what was
// on any of them, and what comes later on any of them follows the whole group.
template <typename F>
void Group::for_shared_streams(F&& action) {
  for (const Use& use : uses_) {
    const auto streams = std::count_if(uses_.begin(), uses_.end(), [&](const Use& other) {
      return other.communicator == use.communicator;
    });
    if (streams > 1 && !broken(*use.communicator)) {
      note(*use.communicator, action(*use.communicator, use.stream));
    }
  }
}

void Group::run_kernels(bool first, Verifications& due) {
  for (const Kernel& kernel : kernels_) {
    Communicator& communicator = *kernel.first_call->communicator;
    if (kernel.first != first || broken(communicator)) continue;
    note(communicator,
         communicator.all_reduce(
             std::span<const AllReduceCall>(calls_).subspan(kernel.begin, kernel.count), due));
  }
}

void Group::finish_forwarded() {
  for (const Use& use : forwarded_) {
    const bool all = std::all_of(forwarded_.begin(), forwarded_.end(), [&](const Use& other) {
      return other.communicator != use.communicator || other.by == StreamOrder::By::kNcclAll;
    });
    const auto by = all ? StreamOrder::By::kNcclAll : StreamOrder::By::kNccl;
    if (!broken(*use.communicator))
      note(*use.communicator, use.communicator->extend(use.stream, by));
  }
}

// Communicator by communicator, in the order of their calls, as outside a group; those of one
// communicator's ranks go together.
void Group::verify_each(Verifications& due) {
  while (!due.empty()) {
    const Communicator& first = due.front()->communicator();
    const auto rest = std::stable_partition(due.begin(), due.end(), [&](const auto& one) {
      return one->communicator().key() == first.key();
    });
    const std::span<const std::unique_ptr<Verification>> part(due.begin(), rest);
    note(first, verify(part));
    due.erase(due.begin(), rest);
  }
}

void Group::clear() {
  failed_ = ours_ = ncclSuccess;
  broken_.clear();
  forwarded_on_.clear();
  sums_.clear();
  queued_.clear();
  kernels_.clear();
  forwarded_.clear();
  uses_.clear();
  makers_.clear();
  kept_.clear();
}

void Group::before_ncclGroupEnd(Verifications& due) {
  // An error inside the group cancels what was queued; NCCL's End says which.
  if (failed_ != ncclSuccess) return;
  for_shared_streams([](Communicator& communicator, cu::Stream stream) {
    return communicator.extend(stream, StreamOrder::By::kShunt);  // no operation of NCCL's
  });
  // In the order of the user's calls as far as NCCL's group, which cannot be split, allows: another
  // rank may make the same calls outside a group, and then waits for them in that order. Device by
  // device: one thread's group holds the calls of several ranks, one rank's after the other's.
  fuse();
  place_kernels();
  for (const Queued& queued : queued_) {
    count_call(queued.communicator, queued.call.count,
               static_cast<ncclDataType_t>(queued.call.type),
               static_cast<ncclRedOp_t>(queued.call.op), true);
  }
  run_kernels(true, due);
  // What NCCL runs on one stream follows what was on the others, and the kernels.
  for_shared_streams([this](Communicator& communicator, cu::Stream stream) {
    return forwards(communicator) ? communicator.join(stream) : ncclSuccess;
  });
}

void Group::after_ncclGroupEnd(Verifications& due) {
  finish_forwarded();
  if (failed_ != ncclSuccess) return;
  run_kernels(false, due);
  for_shared_streams(
      [](Communicator& communicator, cu::Stream stream) { return communicator.join(stream); });
  for (const auto& one : due) {
    if (broken(one->communicator())) one->abandon();
  }
  std::erase_if(due, [this](const auto& one) { return broken(one->communicator()); });
  verify_each(due);
}

ncclResult_t Group::end(NcclLibrary& library) {
  if (depth_ != 1) {
    const ncclResult_t result = library.call<k_ncclGroupEnd>();
    if (depth_ > 0) --depth_;
    return result;
  }
  depth_ = 0;
  Verifications due;
  // Whatever happens here NCCL's group must end, and nothing of it may be left to the next one.
  const auto guarded = [this](auto&& work) {
    try {
      work();
    } catch (const std::exception& error) {
      log_error("the end of a group: %s", error.what());
      if (ours_ == ncclSuccess) ours_ = ncclSystemError;
      if (failed_ == ncclSuccess) failed_ = ncclSystemError;
    }
  };
  guarded([&] { before_ncclGroupEnd(due); });
  const ncclResult_t theirs = library.call<k_ncclGroupEnd>();
  const bool ended = theirs == ncclSuccess || theirs == ncclInProgress;
  if (ended) guarded([&] { after_ncclGroupEnd(due); });
  for (const auto& one : due) one->abandon();
  const ncclResult_t failed = failed_, ours = ours_;
  std::vector<Maker> makers = std::move(makers_);
  clear();
  if (!ended) return theirs;
  if (theirs == ncclInProgress) {
    for (Maker& maker : makers) maker.blocking = false;
  }
  // NCCL has made them, whatever else went wrong: their other ranks prepare.
  const ncclResult_t made = makers.empty() ? ncclSuccess : finish_makers(library, makers);
  for (const ncclResult_t error : {failed, ours, made}) {
    if (error != ncclSuccess) return error;  // that NCCL has not seen
  }
  return theirs;
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
