#include "test/emulator/nccl/lifecycle.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "test/emulator/nccl/bootstrap.h"
#include "test/emulator/nccl/driver.h"
#include "test/emulator/nccl/group.h"
#include "test/emulator/nccl/launch.h"
#include "test/emulator/nccl/trace.h"

namespace emu_nccl {
namespace {

// What a maker's job does about its result: a communicator that was not made is null, unless the
// user polls it.
ncclResult_t settle(ncclComm* comm, ncclComm_t* newcomm, ncclResult_t result) {
  if (comm->blocking && result != ncclSuccess) {
    *newcomm = nullptr;
    retire(comm);
  } else if (comm->blocking) {
    comm->state.store(ncclSuccess);
  }
  return result;
}

std::function<void()> forget(ncclComm* comm, ncclComm_t* newcomm) {
  return [=] {
    *newcomm = nullptr;
    retire(comm);
  };
}

ncclResult_t drain(ncclComm* comm) {
  ContextGuard guard(comm->context);
  return comm->order.drain();
}

// Until all ranks have come here, by an all-reduce of nothing of theirs.
ncclResult_t meet(ncclComm* comm) {
  CUdeviceptr word = 0;
  CUstream stream = nullptr;
  EMU_NCCL_TRY(check(cuMemAlloc(&word, 4), "cuMemAlloc"));
  EMU_NCCL_TRY(check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"));
  Operation operation;
  operation.send = operation.recv = reinterpret_cast<void*>(word);
  operation.count = 1;
  operation.type = ncclInt32;
  operation.stream = stream;
  EMU_NCCL_TRY(launch(comm, {operation}));
  EMU_NCCL_TRY(comm->order.drain());
  cuStreamDestroy(stream);
  return check(cuMemFree(word), "cuMemFree");
}

// Operations of the parent end unfinished; the ranks that go on are out of step on it for ever.
ncclResult_t end_operations_for_a_while(ncclComm* comm) {
  comm->core->halt(false);
  const ncclResult_t drained = drain(comm);
  comm->core->halt_operations.store(false);
  return drained;
}

}  // namespace

ncclResult_t make_from_id(const char* name, ncclComm_t* newcomm, int ranks, const ncclUniqueId& id,
                          int rank, const ncclConfig_t* config) {
  CUcontext context = nullptr;
  int device = 0;
  bool blocking = true;
  EMU_NCCL_TRY(fail_group(current_device(&context, &device)));
  if (newcomm == nullptr)
    return fail_group(
        refuse(ncclInvalidArgument, std::string(name) + " : newcomm argument is NULL"));
  *newcomm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return fail_group(
        refuse(ncclInvalidArgument,
               "Invalid rank requested : " + std::to_string(rank) + "/" + std::to_string(ranks)));
  }
  if (ranks > kMaxRanks) {
    shout("at most " + std::to_string(kMaxRanks) + " ranks are emulated");
    return fail_group(ncclInternalError);
  }
  EMU_NCCL_TRY(fail_group(parse_config(config, &blocking)));

  SegmentName segment;
  std::memcpy(&segment, id.internal, sizeof(segment));
  auto* comm = new ncclComm;
  comm->context = context;
  comm->device = device;
  comm->blocking = blocking;
  comm->rank = rank;
  comm->ranks = ranks;
  comm->core->id.store(segment.short_id());
  *newcomm = comm;
  trace_call(name, comm);
  Job job{comm, [=] { return settle(comm, newcomm, join(comm, segment, ranks, rank)); }};
  job.cancel = forget(comm, newcomm);
  return fail_group(submit(std::move(job)));
}

ncclResult_t make_child(ncclComm_t parent, ncclComm_t* newcomm, const ncclConfig_t* config,
                        const ChildSpec& spec) {
  trace_call(spec.name, parent);
  const auto invalid = [&](const char* text) {
    return fail_group(refuse(ncclInvalidArgument, std::string(spec.name) + " : " + text));
  };
  EMU_NCCL_TRY(fail_group(check_comm(parent, spec.name)));
  if (newcomm == nullptr) return invalid("newcomm argument is NULL");
  std::vector<int> excluded;
  if (spec.excluded) {
    excluded.assign(spec.excluded, spec.excluded + spec.excluded_count);
    if (std::find(excluded.begin(), excluded.end(), parent->rank) != excluded.end())
      return invalid("an excluded rank may not call");
  }
  if (spec.abort_parent) EMU_NCCL_TRY(fail_group(end_operations_for_a_while(parent)));
  EMU_NCCL_TRY(fail_group(ensure_ready(parent)));
  bool blocking = parent->blocking;
  if (config) EMU_NCCL_TRY(fail_group(parse_config(config, &blocking)));

  *newcomm = nullptr;
  const bool is_shrink = spec.excluded != nullptr;
  const int grown_ranks = spec.grown_ranks;
  std::optional<SegmentName> id;
  if (spec.id != nullptr) std::memcpy(&id.emplace(), spec.id->internal, sizeof(SegmentName));
  const int color = spec.color, key = spec.key;
  if (!is_shrink && grown_ranks == 0 && color == NCCL_SPLIT_NOCOLOR) {
    return fail_group(
        submit({parent, [=] { return join_split(parent, nullptr, color, key); }, false, parent}));
  }
  auto* child = new ncclComm;
  child->context = parent->context;
  child->device = parent->device;
  child->blocking = blocking;
  *newcomm = child;
  Job job{child, [=] {
            return settle(child, newcomm,
                          is_shrink          ? join_shrunk(parent, child, excluded)
                          : grown_ranks != 0 ? join_grown(parent, child, grown_ranks, id ? &*id : nullptr)
                                             : join_split(parent, child, color, key));
          }};
  job.parent = parent;
  job.cancel = forget(child, newcomm);
  return fail_group(submit(std::move(job)));
}

ncclResult_t make_all(ncclComm_t* comms, int ndev, const int* devlist) {
  trace_call("ncclCommInitAll", nullptr);
  EMU_NCCL_TRY(fail_group(check(cuInit(0), "cuInit")));
  if (comms == nullptr)
    return fail_group(refuse(ncclInvalidArgument, "CommInitAll : comms argument is NULL"));
  int devices = 0;
  EMU_NCCL_TRY(fail_group(check(cuDeviceGetCount(&devices), "cuDeviceGetCount")));
  if (ndev < 0) return fail_group(refuse(ncclInvalidArgument, "Invalid device count requested"));
  std::vector<CUcontext> contexts;
  std::vector<int> seen;
  for (int i = 0; i < ndev; ++i) {
    const int device = devlist ? devlist[i] : i;
    if (device < 0 || device >= devices) {
      return fail_group(refuse(ncclInvalidArgument, "Invalid device " + std::to_string(device) +
                                                        " (totalnDev=" + std::to_string(devices) +
                                                        ")"));
    }
    if (std::find(seen.begin(), seen.end(), device) != seen.end())
      return fail_group(ncclInvalidUsage);
    seen.push_back(device);
    contexts.emplace_back();
    EMU_NCCL_TRY(fail_group(
        check(cuDevicePrimaryCtxRetain(&contexts.back(), device), "cuDevicePrimaryCtxRetain")));
  }
  ncclUniqueId id;
  EMU_NCCL_TRY(fail_group(ncclGetUniqueId(&id)));
  group_start();
  for (int i = 0; i < ndev; ++i) {
    ContextGuard guard(contexts[static_cast<size_t>(i)]);
    make_from_id("ncclCommInitAll", comms + i, ndev, id, i, nullptr);
  }
  return fail_group(group_end());
}

ncclResult_t finalize(ncclComm_t comm) {
  trace_call("ncclCommFinalize", comm);
  if (comm == nullptr) return ncclSuccess;
  EMU_NCCL_TRY(fail_group(ensure_ready(comm)));
  if (comm->finalized.exchange(true)) return fail_group(ncclInvalidArgument);
  return fail_group(submit({comm, [=] { return drain(comm); }}));
}

ncclResult_t destroy(ncclComm_t comm) {
  trace_call("ncclCommDestroy", comm);
  if (comm == nullptr) return ncclSuccess;
  EMU_NCCL_TRY(fail_group(check_comm(comm, "ncclCommDestroy")));
  EMU_NCCL_TRY(fail_group(ensure_ready(comm)));
  return fail_group(submit({comm, [=] { return retire(comm); }, true}));
}

ncclResult_t abort(ncclComm_t comm) {
  trace_call("ncclCommAbort", comm);
  if (comm == nullptr) return ncclSuccess;
  EMU_NCCL_TRY(fail_group(check_comm(comm, "ncclCommAbort")));
  comm->core->halt(true);
  return fail_group(submit({comm, [=] { return retire(comm); }, true}));
}

ncclResult_t suspend(ncclComm_t comm, bool now) {
  const char* const name = now ? "ncclCommSuspend" : "ncclCommResume";
  trace_call(name, comm);
  EMU_NCCL_TRY(fail_group(check_comm(comm, name)));
  EMU_NCCL_TRY(fail_group(ensure_ready(comm)));
  return fail_group(submit({comm, [=] {
                              if (comm->suspended.load() == now) return ncclInvalidUsage;
                              ContextGuard guard(comm->context);
                              EMU_NCCL_TRY(check(cuCtxSynchronize(), "cuCtxSynchronize"));
                              EMU_NCCL_TRY(meet(comm));
                              comm->suspended.store(now);
                              return ncclSuccess;
                            }}));
}

ncclResult_t revoke(ncclComm_t comm, int flags) {
  trace_call("ncclCommRevoke", comm);
  if (comm == nullptr) return ncclSuccess;
  if (flags != NCCL_REVOKE_DEFAULT || comm->finalized.load() || comm->revoked.exchange(true))
    return ncclInvalidArgument;
  comm->finalized.store(true);
  comm->core->halt(false);
  return fail_group(submit({comm, [=] { return drain(comm); }}));
}

}  // namespace emu_nccl
