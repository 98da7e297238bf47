// Preparing: how the ranks of a new communicator agree whether and how to shunt. Rounds of a real NCCL
// all-reduce on the new communicator; which rounds run is a pure function of what the rounds before
// gathered, so every rank takes part in the same ones, whatever failed on it.
#pragma once

#include <memory>
#include <span>

#include "shim/engine/communicator.h"

namespace shunt {

// `locals`: all ranks of one communicator that this process holds, in lock-step, so that one thread may
// drive several GPUs. Returns ncclSuccess, whatever was decided; ncclRemoteError if a peer's process died
// meanwhile (the communicator can then never work), or NCCL's error if its own all-reduce failed.
ncclResult_t prepare(std::span<const std::shared_ptr<Communicator>> locals) noexcept;

}  // namespace shunt
