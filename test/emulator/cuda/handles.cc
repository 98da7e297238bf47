#include "handles.h"

#include "context.h"

namespace emu {
namespace {

StreamPtr per_thread_stream(Context& context) {
  static thread_local auto* streams = new std::map<Context*, StreamPtr>;
  StreamPtr& stream = (*streams)[&context];
  if (stream == nullptr) {
    stream = std::make_shared<Stream>(context, CU_STREAM_DEFAULT, 0, false);
    context.add_stream(stream);
  }
  return stream;
}

}  // namespace

Lock lock_driver() {
  static std::mutex& mutex = *new std::mutex;
  return Lock(mutex);
}

Handles<Stream, CUstream>& live_streams() {
  static auto& instance = *new Handles<Stream, CUstream>("stream");
  return instance;
}
Handles<Event, CUevent>& live_events() {
  static auto& instance = *new Handles<Event, CUevent>("event");
  return instance;
}
Handles<Graph, CUgraph>& live_graphs() {
  static auto& instance = *new Handles<Graph, CUgraph>("graph");
  return instance;
}
Handles<GraphExec, CUgraphExec>& live_execs() {
  static auto& instance = *new Handles<GraphExec, CUgraphExec>("executable graph");
  return instance;
}
Handles<Module, CUmodule>& live_modules() {
  static auto& instance = *new Handles<Module, CUmodule>("module");
  return instance;
}
Handles<Function, CUfunction>& live_functions() {
  static auto& instance = *new Handles<Function, CUfunction>("function");
  return instance;
}

StreamPtr stream_of(CUstream handle, const char* caller) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return current_context().legacy_stream();
  if (handle == CU_STREAM_PER_THREAD) return per_thread_stream(current_context());
  const StreamPtr& stream = live_streams().find(handle, caller);
  if (stream->context().sticky() != CUDA_SUCCESS) fail(stream->context().sticky());
  return stream;
}

}  // namespace emu
