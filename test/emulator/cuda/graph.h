// Graphs and what they become when instantiated.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "stream.h"

namespace emu {

struct Event;

struct Node {
  Context& context;
  Op op;
  std::vector<Node*> dependencies;
  // External events: waited for before, or recorded after, a launch of the graph.
  std::shared_ptr<Event> waits{};
  std::shared_ptr<Event> records{};

  CUgraphNode handle() { return reinterpret_cast<CUgraphNode>(this); }
};

struct Graph {
  Node* add(Context& context, Op op, std::vector<Node*> dependencies);
  // `from` and everything that it depends on.
  std::vector<const Node*> ancestors(const std::vector<Node*>& from) const;

  std::vector<std::unique_ptr<Node>> nodes;  // each after its dependencies
};

// A copy of a graph's nodes, cut into chains that may run side by side.
class GraphExec {
 public:
  explicit GraphExec(const Graph& graph);

  // Blocks until every node has run.
  CUresult run() const;

  const std::vector<std::shared_ptr<Event>>& waits() const { return waits_; }
  const std::vector<std::shared_ptr<Event>>& records() const { return records_; }

  WorkPtr last_launch;  // under the driver's lock; launches of one executable graph never overlap

 private:
  struct Step {
    Context* context;
    Action action;
    std::vector<size_t> dependencies;
  };
  struct Launch;
  void run_chain(Launch& launch, size_t chain) const;

  std::vector<Step> steps_;
  std::vector<std::vector<size_t>> chains_;
  std::vector<std::shared_ptr<Event>> waits_;
  std::vector<std::shared_ptr<Event>> records_;
};

}  // namespace emu
