#include "shim/engine/registry.h"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace shunt {
namespace {

using Key = std::pair<const NcclLibrary*, ncclComm_t>;

// Removed communicators that other threads may still hold by pointer, oldest first.
constexpr size_t kRemembered = 8;

std::atomic<uint64_t> epoch{1};  // changes with the map; what a thread remembers is of one epoch

struct Remembered {
  uint64_t epoch = 0;
  Key key{};
  Communicator* communicator = nullptr;
};
thread_local Remembered remembered;

}  // namespace

struct Registry::State {
  std::shared_mutex mutex;
  std::map<Key, std::shared_ptr<Communicator>> live;
  std::deque<std::shared_ptr<Communicator>> removed;
};

Registry::Registry() : state_(*new State) {}

Registry& Registry::get() {
  static auto& registry = *new Registry;  // never destroyed: NCCL calls may come while exiting
  return registry;
}

void Registry::add(std::shared_ptr<Communicator> communicator) {
  const Key key{&communicator->library(), communicator->handle()};
  std::unique_lock lock(state_.mutex);
  state_.live[key].swap(communicator);  // what was there goes once the lock has
  epoch.fetch_add(1, std::memory_order_acq_rel);
  lock.unlock();
}

Communicator* Registry::find(const NcclLibrary& library, ncclComm_t handle) noexcept {
  const Key key{&library, handle};
  const uint64_t now = epoch.load(std::memory_order_acquire);
  if (remembered.epoch == now && remembered.key == key) return remembered.communicator;
  if (handle == nullptr) return nullptr;
  std::shared_lock lock(state_.mutex);
  const auto found = state_.live.find(key);
  Communicator* communicator = found == state_.live.end() ? nullptr : found->second.get();
  remembered = {now, key, communicator};
  return communicator;
}

std::shared_ptr<Communicator> Registry::remove(const NcclLibrary& library, ncclComm_t handle) {
  // Destroyed once the lock is gone: that makes driver calls.
  std::shared_ptr<Communicator> oldest;
  std::unique_lock lock(state_.mutex);
  const auto found = state_.live.find({&library, handle});
  if (found == state_.live.end()) return nullptr;
  std::shared_ptr<Communicator> communicator = found->second;
  state_.live.erase(found);
  epoch.fetch_add(1, std::memory_order_acq_rel);
  state_.removed.push_back(communicator);
  if (state_.removed.size() > kRemembered) {
    oldest = std::move(state_.removed.front());
    state_.removed.pop_front();
  }
  return communicator;
}

}  // namespace shunt
