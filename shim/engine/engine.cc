// The engine's only exported symbol, and what happens once in a process.
#include "shim/engine_interface.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "shim/engine/call_count.h"
#include "shim/engine/fork_safe.h"
#include "shim/engine/log.h"
#include "shim/engine/nccl_library.h"
#include "shim/engine/process_settings.h"
#include "shim/engine/tuner_offer.h"
#include "shim/engine/wrappers.h"

namespace shunt {
namespace {

pid_t owner = 0;  // a forked child did not make the calls that it inherits the counts of

void at_exit() {
  if (!process_settings().stats || getpid() != owner) return;
  const Counters count = counters();
  log_stats_line(format("shunted=%llu forwarded=%llu communicators=%llu", count.shunted,
                        count.forwarded, count.communicators));
}

bool is_ours(const void* address) {
  Dl_info theirs{}, ours{};
  return dladdr(address, &theirs) != 0 &&
         dladdr(reinterpret_cast<const void*>(&shunt_engine), &ours) != 0 &&
         theirs.dli_fbase == ours.dli_fbase;
}

HookTable wrappers_of(const void* address) {
  try {
    // NCCL called one of its own public names by a tail call: what it returns to is our call of it.
    if (inside_library != nullptr && is_ours(address)) return inside_library->real;
    const NcclLibrary* library = library_of(address);
    return library == nullptr ? nullptr : library->wrappers;
  } catch (const std::exception& error) {
    log_error("%s", error.what());
    return nullptr;
  }
}

void warn(const char* message) { log_warning("%s", message); }

constexpr Engine kEngine{kEngineAbi, wrappers_of, warn};

}  // namespace
}  // namespace shunt

extern "C" __attribute__((visibility("default"))) const shunt::Engine* shunt_engine() {
  static constinit std::atomic<bool> started = false;
  static constinit shunt::ForkSafeMutex mutex;
  if (started.load(std::memory_order_acquire)) return &shunt::kEngine;
  std::lock_guard lock(mutex);
  if (started.load(std::memory_order_acquire)) return &shunt::kEngine;
  shunt::process_settings();
  shunt::offer_tuner();
  shunt::owner = getpid();
  std::atexit(shunt::at_exit);
  started.store(true, std::memory_order_release);
  return &shunt::kEngine;
}
