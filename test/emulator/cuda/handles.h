// Live objects by their handles, and the lock under which all bookkeeping of the driver happens.
// Nothing may be waited for while it is held.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>

#include "event.h"
#include "graph.h"
#include "module.h"
#include "report.h"
#include "stream.h"

namespace emu {

using Lock = std::unique_lock<std::mutex>;
[[nodiscard]] Lock lock_driver();

template <typename Object, typename Handle>
class Handles {
 public:
  explicit Handles(const char* kind) : kind_(kind) {}

  Handle add(std::shared_ptr<Object> object) {
    auto handle = reinterpret_cast<Handle>(object.get());
    live_[handle] = std::move(object);
    return handle;
  }
  // Handles come back like heap addresses do: a stale one may well name a newer object.
  const std::shared_ptr<Object>& find(Handle handle, const char* caller) const {
    const auto found = live_.find(handle);
    if (found == live_.end()) {
      misuse(CUDA_ERROR_INVALID_HANDLE, "%s: %p is no %s (destroyed?)", caller,
             static_cast<void*>(handle), kind_);
    }
    return found->second;
  }
  std::shared_ptr<Object> remove(Handle handle, const char* caller) {
    std::shared_ptr<Object> object = find(handle, caller);
    live_.erase(handle);
    return object;
  }
  // What belongs to a context that is reset.
  template <typename Predicate>
  void remove_if(Predicate&& predicate) {
    std::erase_if(live_, [&](const auto& one) { return predicate(*one.second); });
  }

 private:
  const char* kind_;
  std::map<Handle, std::shared_ptr<Object>> live_;
};

Handles<Stream, CUstream>& live_streams();
Handles<Event, CUevent>& live_events();
Handles<Graph, CUgraph>& live_graphs();
Handles<GraphExec, CUgraphExec>& live_execs();
Handles<Module, CUmodule>& live_modules();
// Functions live as long as their module.
Handles<Function, CUfunction>& live_functions();

// The stream that `handle` names for the calling thread: null and CU_STREAM_LEGACY are the current
// context's legacy stream, CU_STREAM_PER_THREAD the thread's own. Throws if its context has
// faulted.
StreamPtr stream_of(CUstream handle, const char* caller);

}  // namespace emu
