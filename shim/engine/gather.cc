#include "shim/engine/gather.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "shim/engine/log.h"
#include "shim/engine/settings.h"

namespace shunt {
namespace {

void nccl_check(const NcclLibrary& library, ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw GatherFailed{result, std::string(what) + ": " + library.error_string(result)};
}

}  // namespace

void Gatherer::exchange(const unsigned char* mine, size_t bytes, unsigned char* table,
                        const char* round) {
  const NcclLibrary& library = locals_[0].communicator->library();
  const auto ranks = static_cast<size_t>(locals_[0].communicator->ranks());
  const size_t total = ranks * bytes;
  try {
    for (size_t i = 0; i < locals_.size(); ++i) {
      LocalRank& local = locals_[i];
      cu::ContextScope current(local.device->context);
      std::memset(local.scratch->host(), 0, total);
      std::memcpy(local.scratch->host() + local.rank() * bytes, mine + i * bytes, bytes);
      if (!local.scratch->shared()) {
        SHUNT_CU(copy_to_device, local.scratch->device(), local.scratch->host(), total, local.stream->get());
      }
    }
    // The real calls, never our wrappers: a group of this thread may not be counted as the user's.
    if (locals_.size() > 1) nccl_check(library, library.call<k_ncclGroupStart>(), "ncclGroupStart");
    try {
      enqueue_all(total);
    } catch (...) {
      // A group left open would swallow every later call of this thread.
      if (locals_.size() > 1) (void)library.call<k_ncclGroupEnd>();
      throw;
    }
    if (locals_.size() > 1) nccl_check(library, library.call<k_ncclGroupEnd>(), "ncclGroupEnd");
    for (LocalRank& local : locals_) {
      cu::ContextScope current(local.device->context);
      if (!local.scratch->shared()) {
        SHUNT_CU(copy_to_host, local.scratch->host(), local.scratch->device(), total, local.stream->get());
      }
    }
    wait(round);
  } catch (const cu::Error& error) {
    throw GatherFailed{ncclUnhandledCudaError, std::string(round) + ": " + error.what()};
  }
  std::memcpy(table, locals_[0].scratch->host(), total);
}

void Gatherer::enqueue_all(size_t total) {
  const NcclLibrary& library = locals_[0].communicator->library();
  for (LocalRank& local : locals_) {
    if (local.communicator->aborted()) throw GatherFailed{ncclInvalidUsage, "aborted"};
    cu::ContextScope current(local.device->context);
    void* at = reinterpret_cast<void*>(local.scratch->device());
    nccl_check(library,
               library.call<k_ncclAllReduce>(
                   static_cast<const void*>(at), at, total, ncclUint8, ncclMax,
                   local.communicator->handle(), local.stream->get()),
               "ncclAllReduce");
  }
}

void Gatherer::wait(const char* round) {
  const auto start = Clock::now();
  bool reported = false;
  for (uint32_t turn = 0;; ++turn) {
    bool idle = true;
    for (LocalRank& local : locals_) {
      if (local.communicator->aborted()) throw GatherFailed{ncclInvalidUsage, "aborted"};
      cu::ContextScope current(local.device->context);
      idle = local.stream->idle() && idle;
    }
    if (idle) return;
    if (turn < 2000) {
      std::this_thread::sleep_for(std::chrono::microseconds(10));
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (turn % 64 != 0) continue;
    if (const uint32_t dead = peers_ != nullptr ? peers_->dead_ranks() : 0; dead != 0) {
      // All of them: the others may have died of the first one's death.
      throw GatherFailed{ncclRemoteError, peers_->text(dead) + " ended in round '" + round + "'"};
    }
    if (!reported && Clock::now() - start > std::chrono::duration<double>(kReportSeconds)) {
      reported = true;
      log_warning("communicator %s: rank %u still waits for the other ranks in round '%s'",
                  locals_[0].communicator->key().c_str(), locals_[0].rank(), round);
    }
  }
}

}  // namespace shunt
