#include "graph.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>

#include "context.h"

namespace emu {
namespace {

// Threads for the chains of graphs beyond the first. As many as are needed at once: chains may wait
// for each other, or through peers, so none may queue behind another.
class Helpers {
 public:
  void run(std::function<void()> body) {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(body));
    if (idle_ < queue_.size()) {
      start_thread("emu-graph", [this] { loop(); });
    } else {
      arrived_.notify_one();
    }
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      arrived_.wait(lock, [&] { return !queue_.empty(); });
      --idle_;
      std::function<void()> body = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      body();
      body = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::function<void()>> queue_;
  size_t idle_ = 0;
};

Helpers& helpers() {
  static Helpers& instance = *new Helpers;
  return instance;
}

}  // namespace

Node* Graph::add(Context& context, Op op, std::vector<Node*> dependencies) {
  nodes.push_back(std::make_unique<Node>(Node{context, std::move(op), std::move(dependencies)}));
  return nodes.back().get();
}

std::vector<const Node*> Graph::ancestors(const std::vector<Node*>& from) const {
  std::set<const Node*> found(from.begin(), from.end());
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (found.count(node->get()) == 0) continue;
    found.insert((*node)->dependencies.begin(), (*node)->dependencies.end());
  }
  return {found.begin(), found.end()};
}

GraphExec::GraphExec(const Graph& graph) {
  std::map<const Node*, size_t> index;
  std::vector<size_t> chain_ending_at;  // by node: the chain that it ends so far
  constexpr size_t kNone = SIZE_MAX;
  for (const auto& node : graph.nodes) {
    const size_t number = steps_.size();
    index[node.get()] = number;
    Step step{&node->context, node->op.action, {}};
    size_t chain = kNone;
    for (const Node* dependency : node->dependencies) {
      const size_t before = index.at(dependency);
      step.dependencies.push_back(before);
      if (chain == kNone) std::swap(chain, chain_ending_at[before]);
    }
    if (chain == kNone) {
      chain = chains_.size();
      chains_.emplace_back();
    }
    chains_[chain].push_back(number);
    chain_ending_at.push_back(chain);
    steps_.push_back(std::move(step));
    if (node->waits) waits_.push_back(node->waits);
    if (node->records) records_.push_back(node->records);
  }
}

struct GraphExec::Launch {
  explicit Launch(size_t steps) : done(steps) {}
  std::vector<Work> done;
};

CUresult GraphExec::run() const {
  if (chains_.empty()) return CUDA_SUCCESS;
  const auto launch = std::make_shared<Launch>(steps_.size());
  for (size_t chain = 1; chain < chains_.size(); ++chain) {
    // `this` lives until all steps are done; after its last step a helper touches the launch only.
    helpers().run([this, launch, chain] { run_chain(*launch, chain); });
  }
  run_chain(*launch, 0);
  CUresult result = CUDA_SUCCESS;
  for (const Work& work : launch->done) {
    work.wait();
    if (result == CUDA_SUCCESS) result = work.result();
  }
  return result;
}

void GraphExec::run_chain(Launch& launch, size_t chain) const {
  const size_t length = chains_[chain].size();
  for (size_t i = 0; i < length; ++i) {
    const size_t number = chains_[chain][i];
    const Step& step = steps_[number];
    for (size_t dependency : step.dependencies) launch.done[dependency].wait();
    CUresult result = step.context->sticky();
    if (result == CUDA_SUCCESS) result = step.action({*step.context, true});
    launch.done[number].finish(result);
  }
}

}  // namespace emu
