// The live communicators, by library and handle. An address that is made anew names the new one.
#pragma once

#include <memory>

#include "shim/engine/communicator.h"

namespace shunt {

class Registry {
 public:
  static Registry& get();
  void add(std::shared_ptr<Communicator> communicator);
  // nullptr: unknown, and therefore forwarded. A few ns when a thread asks for the same one again.
  Communicator* find(const NcclLibrary& library, ncclComm_t handle) noexcept;
  // The object stays valid for callers that still hold a pointer from find (a watchdog thread, say).
  std::shared_ptr<Communicator> remove(const NcclLibrary& library, ncclComm_t handle);

 private:
  struct State;
  Registry();
  State& state_;
};

}  // namespace shunt
