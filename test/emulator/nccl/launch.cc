#include "test/emulator/nccl/launch.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <thread>
#include <utility>

#include "test/emulator/nccl/collective.h"
#include "test/emulator/nccl/driver.h"
#include "test/emulator/nccl/point_to_point.h"
#include "test/emulator/nccl/settings.h"

namespace emu_nccl {
namespace {

struct Batch {
  std::shared_ptr<Core> core;       // eager: kept until it has run
  std::weak_ptr<Core> core_if_any;  // captured: a graph may outlive its communicator
  std::vector<Operation> collectives;
  std::vector<Operation> transfers;
};

// A graph can be replayed at any time, and nobody says when it is gone: its batches stay,
// reachable, so that leak checkers are content. They hold a few hundred bytes and no segment.
Batch* keep_for_replays(std::unique_ptr<Batch> batch) {
  static auto* mutex = new std::mutex;
  static auto* kept = new std::list<std::unique_ptr<Batch>>;
  std::lock_guard lock(*mutex);
  kept->push_back(std::move(batch));
  return kept->back().get();
}

void run_all(Core& core, const Batch& batch) {
  bool free = false;
  const auto take_turn = [&] {
    free = false;
    return core.running.compare_exchange_strong(free, true);
  };
  if (!core.segment.wait_until(core.halt_operations, take_turn)) return;
  bool finished = true;
  for (const Operation& operation : batch.collectives)
    finished = finished && run_collective(core, operation);
  if (finished && !batch.transfers.empty()) run_point_to_point(core, batch.transfers);
  if (const long us = settings().microseconds; us > 0 && finished) {
    const size_t operations = batch.collectives.size() + (batch.transfers.empty() ? 0 : 1);
    std::this_thread::sleep_for(std::chrono::microseconds(us) * operations);
  }
  core.running.store(false);
  core.segment.ring(core.segment.rank());
}

void CUDA_CB run_eager(void* data) {
  const std::unique_ptr<Batch> batch(static_cast<Batch*>(data));
  run_all(*batch->core, *batch);
}

void CUDA_CB run_replayed(void* data) {
  const Batch& batch = *static_cast<const Batch*>(data);
  if (const std::shared_ptr<Core> core = batch.core_if_any.lock()) {
    run_all(*core, batch);
  } else {
    shout("a graph was replayed after its communicator was destroyed");
  }
}

ncclResult_t enqueue(ncclComm* comm, std::unique_ptr<Batch> batch, CUstream stream, bool captured) {
  if (captured) {
    batch->core_if_any = comm->core;
    return check(cuLaunchHostFunc(stream, run_replayed, keep_for_replays(std::move(batch))),
                 "cuLaunchHostFunc");
  }
  batch->core = comm->core;
  const CUresult result = cuLaunchHostFunc(stream, run_eager, batch.get());
  if (result == CUDA_SUCCESS) batch.release();
  return check(result, "cuLaunchHostFunc");
}

}  // namespace

ncclResult_t launch(ncclComm* comm, std::vector<Operation> operations) {
  ContextGuard guard(comm->context);
  std::vector<CUstream> streams;
  CaptureState capture;
  auto batch = std::make_unique<Batch>();
  for (const Operation& operation : operations) {
    (is_point_to_point(operation.function) ? batch->transfers : batch->collectives)
        .push_back(operation);
    if (std::find(streams.begin(), streams.end(), operation.stream) != streams.end()) continue;
    CaptureState state;
    EMU_NCCL_TRY(capture_state(operation.stream, &state));
    if (!streams.empty() && state != capture) {
      return refuse(ncclInvalidUsage,
                    "Streams given to a communicator within a NCCL group must either be all "
                    "uncaptured or all captured by the same graph.");
    }
    capture = state;
    streams.push_back(operation.stream);
  }
  EMU_NCCL_TRY(comm->order.enter(streams, capture));
  EMU_NCCL_TRY(enqueue(comm, std::move(batch), streams.front(), capture.active));
  return comm->order.leave(streams, capture);
}

}  // namespace emu_nccl
