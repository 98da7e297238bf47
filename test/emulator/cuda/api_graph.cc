// Entry points: graphs.
#include <cuda.h>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "report.h"
#include "settings.h"

using namespace emu;

namespace {

CUresult instantiate(const char* caller, CUgraphExec* handle, CUgraph graph) {
  const Lock lock = lock_driver();
  *handle = live_execs().add(std::make_shared<GraphExec>(*live_graphs().find(graph, caller)));
  return CUDA_SUCCESS;
}

WorkPtr launch(CUgraphExec handle, CUstream stream_handle) {
  const Lock lock = lock_driver();
  const std::shared_ptr<GraphExec>& exec = live_execs().find(handle, "cuGraphLaunch");
  const StreamPtr stream = stream_of(stream_handle, "cuGraphLaunch");
  std::vector<WorkPtr> before;
  if (exec->last_launch) before.push_back(exec->last_launch);
  for (const auto& event : exec->waits()) {
    if (event->work) before.push_back(event->work);
  }
  WorkPtr work =
      submit(stream, {CU_GRAPH_NODE_TYPE_GRAPH, [exec](const RunInfo&) { return exec->run(); }},
             std::move(before));
  if (work == nullptr) return nullptr;  // captured as a child
  exec->last_launch = work;
  // Recorded when the whole graph is done: later than need be, never too soon.
  for (const auto& event : exec->records()) {
    event->capture = nullptr;
    event->captured.clear();
    event->work = work;
  }
  return work;
}

}  // namespace

extern "C" {

CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                     unsigned long long /*flags*/) {
  return call("cuGraphInstantiateWithFlags",
              [&] { return instantiate("cuGraphInstantiateWithFlags", exec, graph); });
}

// The forms of CUDA 10 and 11: node and log of an error, which there never is.
CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode* node, char* log,
                               size_t log_bytes) {
  return call("cuGraphInstantiate_v2", [&] {
    if (node != nullptr) *node = nullptr;
    if (log != nullptr && log_bytes > 0) *log = '\0';
    return instantiate("cuGraphInstantiate_v2", exec, graph);
  });
}
EMU_ALSO_NAMED("cuGraphInstantiate", "cuGraphInstantiate_v2");

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  return call("cuGraphLaunch", [&] {
    const WorkPtr work = launch(exec, stream);
    if (work && settings().launch_blocking) work->wait();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  return call("cuGraphExecDestroy", [&] {
    const Lock lock = lock_driver();
    live_execs().remove(exec, "cuGraphExecDestroy");
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", [&] {
    const Lock lock = lock_driver();
    live_graphs().remove(graph, "cuGraphDestroy");
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  return call("cuGraphGetNodes", [&] {
    const Lock lock = lock_driver();
    const std::shared_ptr<Graph>& found = live_graphs().find(graph, "cuGraphGetNodes");
    if (nodes != nullptr) {
      for (size_t i = 0; i < *count; ++i) {
        nodes[i] = i < found->nodes.size() ? found->nodes[i]->handle() : nullptr;
      }
    }
    if (nodes == nullptr || *count > found->nodes.size()) *count = found->nodes.size();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return call("cuGraphNodeGetType", [&] {
    *type = reinterpret_cast<Node*>(node)->op.type;
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
