#include "shim/engine/wrappers.h"

#include <cstring>

#include "shim/engine/call_count.h"
#include "shim/engine/group.h"
#include "shim/engine/log.h"
#include "shim/engine/registry.h"

namespace shunt {
namespace {

// ---- operations on a stream --------------------------------------------------------------------------

using By = StreamOrder::By;

struct Operands {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  size_t count = 0;
};
template <typename... Args>
Operands operands_of(Args... args) {
  Operands found;
  const auto look = [&]<typename T>(T value) {
    if constexpr (std::is_same_v<T, ncclComm_t>) found.comm = value;
    if constexpr (std::is_same_v<T, cudaStream_t>) found.stream = value;
    if constexpr (std::is_same_v<T, size_t>) found.count = value;
  };
  (look(args), ...);
  return found;
}

// Each rank needs data of every other one (of the rest, a sender or a root may have finished long before).
constexpr bool needs_all(int hook) {
  for (const int one : {k_ncclAllReduce, k_ncclAllGather, k_ncclReduceScatter, k_ncclAlltoAll, k_ncclAllReduceConfig,
                        k_ncclAllGatherConfig, k_ncclReduceScatterConfig, k_ncclAlltoAllConfig}) {
    if (hook == one) return true;
  }
  return false;
}
constexpr By runs_by(int hook, size_t count) { return needs_all(hook) && count > 0 ? By::kNcclAll : By::kNccl; }

template <int kHook, typename... Args>
ncclResult_t on_call(HookTag<kHook>, NcclLibrary& library, Args... args) {
  const Operands on = operands_of(args...);
  return Group::of(library).forward(Registry::get().find(library, on.comm), on.stream, runs_by(kHook, on.count),
                                    [&] { return library.call<kHook>(args...); });
}

ncclResult_t on_call(HookTag<k_ncclAllReduce>, NcclLibrary& library, const void* send, void* recv,
                     size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                     cudaStream_t stream) {
  Communicator* communicator = Registry::get().find(library, comm);
  const AllReduceCall call{send, recv, count, static_cast<DataType>(type), static_cast<ReduceOp>(op), stream};
  Group& group = Group::of(library);
  const bool shunting = communicator != nullptr && communicator->shunting();
  if (shunting && group.open()) return group.all_reduce(library, *communicator, call);
  const bool shunted =
      shunting && communicator->accepts(count, static_cast<int>(type), static_cast<int>(op));
  count_call(communicator, count, type, op, shunted);
  if (!shunted) {
    return group.forward(communicator, stream, runs_by(k_ncclAllReduce, count), [&] {
      return library.call<k_ncclAllReduce>(send, recv, count, type, op, comm, stream);
    });
  }
  Verifications due;
  const ncclResult_t result = communicator->all_reduce({&call, 1}, due);
  return due.empty() || result != ncclSuccess ? result : verify(due);
}

// What NCCL may be told about one call is not for us to take over.
template <typename Config>
ncclResult_t on_call(HookTag<k_ncclAllReduceConfig>, NcclLibrary& library, const void* send, void* recv,
                     size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                     cudaStream_t stream, Config* config) {
  Communicator* communicator = Registry::get().find(library, comm);
  count_call(communicator, count, type, op, false);
  return Group::of(library).forward(communicator, stream, runs_by(k_ncclAllReduceConfig, count), [&] {
    return library.call<k_ncclAllReduceConfig>(send, recv, count, type, op, comm, stream, config);
  });
}

// ---- groups ------------------------------------------------------------------------------------------

ncclResult_t on_call(HookTag<k_ncclGroupStart>, NcclLibrary& library) {
  return Group::of(library).start(library);
}
ncclResult_t on_call(HookTag<k_ncclGroupEnd>, NcclLibrary& library) {
  return Group::of(library).end(library);
}
ncclResult_t on_call(HookTag<k_ncclGroupSimulateEnd>, NcclLibrary& library, ncclSimInfo_t* info) {
  return Group::of(library).simulate_end(
      [&] { return library.call<k_ncclGroupSimulateEnd>(info); });
}

// ---- makers of communicators -------------------------------------------------------------------------

std::string hex(uint64_t value) { return format("%016llx", static_cast<unsigned long long>(value)); }

// The same on every rank: lines of different ranks can be matched by it.
std::string key_of(const ncclUniqueId& id) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : id.internal) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hex(hash);
}

bool is_blocking(const ncclConfig_t* config, bool inherited) {
  if (config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT) return inherited;
  return config->blocking != 0;
}

template <typename F>
ncclResult_t make(NcclLibrary& library, std::vector<Maker> makers, F&& real) {
  Group& group = Group::of(library);
  const bool grouped = group.open();
  const ncclResult_t result = real();
  const bool made = result == ncclSuccess || result == ncclInProgress;
  if (result == ncclInProgress && !grouped) {  // NCCL_COMM_BLOCKING=0, say
    for (Maker& maker : makers) maker.blocking = false;
  }
  if (grouped) {
    if (!made) group.note_failure(result);
    for (Maker& maker : makers) {
      if (made) group.queue_maker(std::move(maker));
    }
    return result;
  }
  if (!made) return result;
  const ncclResult_t prepared = finish_makers(library, makers);
  return prepared != ncclSuccess ? prepared : result;
}

ncclResult_t on_call(HookTag<k_ncclCommInitRank>, NcclLibrary& library, ncclComm_t* comm, int ranks,
                     ncclUniqueId id, int rank) {
  return make(library, {{comm, key_of(id), true}}, [&] {
    return library.call<k_ncclCommInitRank>(comm, ranks, id, rank);
  });
}

ncclResult_t on_call(HookTag<k_ncclCommInitRankConfig>, NcclLibrary& library, ncclComm_t* comm,
                     int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return make(library, {{comm, key_of(id), is_blocking(config, true)}}, [&] {
    return library.call<k_ncclCommInitRankConfig>(comm, ranks, id, rank, config);
  });
}

ncclResult_t on_call(HookTag<k_ncclCommInitRankScalable>, NcclLibrary& library, ncclComm_t* comm,
                     int ranks, int rank, int ids, ncclUniqueId* id, ncclConfig_t* config) {
  if (ids < 1 || id == nullptr) {
    return library.call<k_ncclCommInitRankScalable>(comm, ranks, rank, ids, id, config);
  }
  return make(library, {{comm, key_of(id[0]), is_blocking(config, true)}}, [&] {
    return library.call<k_ncclCommInitRankScalable>(comm, ranks, rank, ids, id, config);
  });
}

ncclResult_t on_call(HookTag<k_ncclCommInitAll>, NcclLibrary& library, ncclComm_t* comms, int devices,
                     const int* list) {
  static std::atomic<int> serial{0};
  std::vector<Maker> makers;
  const std::string key = "all-" + std::to_string(serial.fetch_add(1));
  for (int i = 0; comms != nullptr && i < devices; ++i) makers.push_back({comms + i, key, true});
  return make(library, std::move(makers), [&] {
    return library.call<k_ncclCommInitAll>(comms, devices, list);
  });
}

// Children of a communicator that we do not know are not ours to judge: forwarded without a round.
template <typename F>
ncclResult_t make_child(NcclLibrary& library, ncclComm_t parent, const std::string& suffix,
                        ncclComm_t* child, const ncclConfig_t* config, bool of_failed, F&& real) {
  Communicator* known = Registry::get().find(library, parent);
  if (known == nullptr || child == nullptr) return real();
  if (const ncclResult_t failed = known->failure(); failed != ncclSuccess && !of_failed) {
    if (Group& group = Group::of(library); group.open()) group.note_failure(failed);
    return failed;
  }
  const std::string key =
      known->key() + "/" + std::to_string(known->next_split()) + suffix;
  *child = nullptr;  // NCCL leaves it so for a rank that is no part of the new communicator
  return make(library, {{child, key, is_blocking(config, known->blocking())}}, real);
}

ncclResult_t on_call(HookTag<k_ncclCommSplit>, NcclLibrary& library, ncclComm_t comm, int color,
                     int rank_key, ncclComm_t* child, ncclConfig_t* config) {
  return make_child(library, comm, format(".%d", color), child, config, false, [&] {
    return library.call<k_ncclCommSplit>(comm, color, rank_key, child, config);
  });
}

ncclResult_t on_call(HookTag<k_ncclCommShrink>, NcclLibrary& library, ncclComm_t comm,
                     int* excluded, int excluded_count, ncclComm_t* child, ncclConfig_t* config,
                     int flags) {
  // With this flag it is how survivors of a dead rank go on.
  const bool aborts = (flags & NCCL_SHRINK_ABORT) != 0;
  if (Communicator* known = Registry::get().find(library, comm); known != nullptr && aborts) {
    known->abort();
  }
  return make_child(library, comm, "s", child, config, aborts, [&] {
    return library.call<k_ncclCommShrink>(comm, excluded, excluded_count, child, config, flags);
  });
}

// What it makes is not registered and so forwarded for ever, on all ranks alike: the only thing that an old and
// a new rank of it both know is its size, which is no key by which ranks could agree on an order of preparing.
template <typename... Args>
ncclResult_t on_call(HookTag<k_ncclCommGrow>, NcclLibrary& library, Args... args) {
  const ncclResult_t result = library.call<k_ncclCommGrow>(args...);
  static std::atomic<bool> said{false};
  if (result == ncclSuccess && !said.exchange(true)) {
    log_info("communicators that ncclCommGrow makes: off: their calls are forwarded");
  }
  if (result != ncclSuccess && result != ncclInProgress) {
    if (Group& group = Group::of(library); group.open()) group.note_failure(result);
  }
  return result;
}

// ---- memory ------------------------------------------------------------------------------------------

// NCCL gives its memory of a communicator back, or gets it again, once the device is idle, all ranks together. So
// the shunted calls before have ended by then, and none waits for one that is still queued in this group; a drain
// of ours would. Our slabs stay where they are, for peers have them mapped. Only a rank whose peer has died may
// not wait for it.
template <int kHook, typename... Args>
ncclResult_t move_memory(NcclLibrary& library, ncclComm_t comm, Args... args) {
  Communicator* known = Registry::get().find(library, comm);
  ncclResult_t result = known != nullptr ? known->look_for_failure() : ncclSuccess;
  if (result == ncclSuccess) result = library.call<kHook>(comm, args...);
  if (result != ncclSuccess && result != ncclInProgress) {
    if (Group& group = Group::of(library); group.open()) group.note_failure(result);
  }
  return result;
}

ncclResult_t on_call(HookTag<k_ncclCommSuspend>, NcclLibrary& library, ncclComm_t comm, int flags) {
  return move_memory<k_ncclCommSuspend>(library, comm, flags);
}
ncclResult_t on_call(HookTag<k_ncclCommResume>, NcclLibrary& library, ncclComm_t comm) {
  return move_memory<k_ncclCommResume>(library, comm);
}

// ---- the end of communicators ------------------------------------------------------------------------

ncclResult_t on_call(HookTag<k_ncclCommFinalize>, NcclLibrary& library, ncclComm_t comm) {
  if (Communicator* known = Registry::get().find(library, comm)) known->drain();
  return library.call<k_ncclCommFinalize>(comm);
}

ncclResult_t on_call(HookTag<k_ncclCommDestroy>, NcclLibrary& library, ncclComm_t comm) {
  // Forgotten before NCCL frees it: its address may be made anew by another thread at once.
  const std::shared_ptr<Communicator> known = Registry::get().remove(library, comm);
  if (known != nullptr) {
    known->drain();
    known->retire();
  }
  return library.call<k_ncclCommDestroy>(comm);
}

ncclResult_t on_call(HookTag<k_ncclCommAbort>, NcclLibrary& library, ncclComm_t comm) {
  // Our kernels first: NCCL's abort may wait for the streams on which they run.
  const std::shared_ptr<Communicator> known = Registry::get().remove(library, comm);
  if (known != nullptr) {
    known->abort();
    known->retire();
  }
  return library.call<k_ncclCommAbort>(comm);
}

ncclResult_t on_call(HookTag<k_ncclCommRevoke>, NcclLibrary& library, ncclComm_t comm, int flags) {
  if (Communicator* known = Registry::get().find(library, comm)) known->abort();
  return library.call<k_ncclCommRevoke>(comm, flags);
}

ncclResult_t on_call(HookTag<k_ncclCommGetAsyncError>, NcclLibrary& library, ncclComm_t comm,
                     ncclResult_t* error) {
  const ncclResult_t result = library.call<k_ncclCommGetAsyncError>(comm, error);
  if (result != ncclSuccess || error == nullptr || *error != ncclSuccess) return result;
  if (Communicator* known = Registry::get().find(library, comm)) *error = known->look_for_failure();
  return result;
}

// ---- tables ------------------------------------------------------------------------------------------

NcclLibrary* slots[kMaxLibraries] = {};

template <int kSlot, int kHook, typename Fn>
struct Wrapper;
template <int kSlot, int kHook, typename... Args>
struct Wrapper<kSlot, kHook, ncclResult_t (*)(Args...)> {
  static ncclResult_t call(Args... args) {
    if (inside_library != nullptr) return slots[kSlot]->template call<kHook>(args...);
    try {
      return on_call(HookTag<kHook>{}, *slots[kSlot], args...);
    } catch (const std::exception& error) {
      log_error("%s", error.what());
    } catch (...) {
      log_error("unknown exception");
    }
    // No exception crosses the C interface. A call that is lost cancels its group, or other ranks would wait for it.
    if (Group& group = Group::of(*slots[kSlot]); group.open()) group.note_failure(ncclSystemError);
    return ncclSystemError;
  }
};

template <int kSlot>
void fill_slot(NcclLibrary& library) {
  slots[kSlot] = &library;
#define SHUNT_FILL(name)                                                                         \
  library.wrappers[k_##name] =                                                                   \
      library.real[k_##name] == nullptr                                                          \
          ? nullptr                                                                              \
          : reinterpret_cast<void*>(&Wrapper<kSlot, k_##name, decltype(&::name)>::call);
  SHUNT_HOOKS(SHUNT_FILL)
#undef SHUNT_FILL
}

}  // namespace

void fill_wrappers(NcclLibrary& library) {
  [&]<int... kSlots>(std::integer_sequence<int, kSlots...>) {
    ((library.slot == kSlots ? fill_slot<kSlots>(library) : void()), ...);
  }(std::make_integer_sequence<int, kMaxLibraries>{});
}

}  // namespace shunt
