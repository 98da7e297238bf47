#include "test/emulator/nccl/group.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "test/emulator/nccl/driver.h"
#include "test/emulator/nccl/launch.h"

namespace emu_nccl {
namespace {

struct Batch {
  ncclComm* comm;
  std::vector<Operation> operations;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Job> jobs;
  std::vector<Batch> batches;  // in the order in which communicators first appear
};
thread_local Group group;

// A call on a communicator starts when the one before it, which returned ncclInProgress, has ended.
void run_in_worker(Job job) {
  ncclComm* comm = job.comm;
  if (comm->worker.joinable()) comm->worker.join();
  comm->state.store(ncclInProgress);
  comm->worker = std::thread([comm, body = std::move(job.body)] { comm->state.store(body()); });
}

struct Chain {
  std::vector<Job> jobs;
  ncclResult_t result = ncclSuccess;

  void run() {
    for (Job& job : jobs)
      if (const ncclResult_t own = job.body(); result == ncclSuccess) result = own;
  }
};

ncclResult_t run_jobs(std::vector<Job> jobs) {
  bool in_progress = false;
  std::vector<Chain> chains;
  for (Job& job : jobs) {
    if (job.comm && !job.comm->blocking && !job.ends_comm) {
      run_in_worker(std::move(job));
      in_progress = true;
      continue;
    }
    auto chain = std::find_if(chains.begin(), chains.end(), [&](const Chain& c) {
      return job.parent && c.jobs.front().parent == job.parent;
    });
    if (chain == chains.end()) chain = chains.emplace(chains.end());
    chain->jobs.push_back(std::move(job));
  }
  // Ranks of one communicator wait for each other, so each needs a thread.
  if (chains.size() == 1) {
    chains.front().run();
  } else {
    std::vector<std::thread> threads;
    for (Chain& chain : chains) threads.emplace_back([&chain] { chain.run(); });
    for (std::thread& thread : threads) thread.join();
  }
  for (const Chain& chain : chains)
    if (chain.result != ncclSuccess) return chain.result;
  return in_progress ? ncclInProgress : ncclSuccess;
}

void cancel(const Group& ended) {
  for (const Job& job : ended.jobs)
    if (job.cancel) job.cancel();
}

ncclResult_t run_group(Group ended) {
  if (ended.error != ncclSuccess) {
    cancel(ended);
    return ended.error;
  }
  const ncclResult_t jobs = run_jobs(std::move(ended.jobs));
  if (jobs != ncclSuccess && jobs != ncclInProgress) return jobs;
  for (Batch& batch : ended.batches) EMU_NCCL_TRY(launch(batch.comm, std::move(batch.operations)));
  return jobs;
}

}  // namespace

int group_depth() { return group.depth; }
void group_start() { ++group.depth; }

ncclResult_t group_end() {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0) return ncclSuccess;
  return run_group(std::exchange(group, Group{}));
}

ncclResult_t group_simulate_end(ncclSimInfo_t* info) {
  if (group.depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, Group{});
  cancel(ended);
  if (ended.error != ncclSuccess) return ended.error;
  if (info == nullptr) return ncclSuccess;
  ncclSimInfo_t copy = NCCL_SIM_INFO_INITIALIZER;
  const size_t size = std::min(info->size, sizeof(copy));
  std::memcpy(static_cast<void*>(&copy), info, size);
  if (copy.magic != 0x74685283) {
    return refuse(ncclInvalidArgument,
                  "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
  }
  copy.estimatedTime = 0;
  for (const Batch& batch : ended.batches)
    copy.estimatedTime += 10.0f * static_cast<float>(batch.operations.size());
  std::memcpy(static_cast<void*>(info), &copy, size);
  return ncclSuccess;
}

ncclResult_t fail_group(ncclResult_t result) {
  if (group.depth > 0 && result != ncclSuccess && result != ncclInProgress) group.error = result;
  return result;
}

ncclResult_t submit(Job job) {
  if (group.depth > 0) {
    group.jobs.push_back(std::move(job));
    return ncclSuccess;
  }
  std::vector<Job> jobs;
  jobs.push_back(std::move(job));
  return run_jobs(std::move(jobs));
}

ncclResult_t submit(ncclComm* comm, const Operation& operation) {
  if (group.depth == 0) return launch(comm, {operation});
  for (Batch& batch : group.batches) {
    if (batch.comm == comm) {
      batch.operations.push_back(operation);
      return ncclSuccess;
    }
  }
  group.batches.push_back({comm, {operation}});
  return ncclSuccess;
}

}  // namespace emu_nccl
