#include "shim/engine/launch.h"

namespace shunt {
namespace {

size_t batch_index(uint32_t ranks) {
  size_t index = 0;
  while (kPeerBatches[index] != peer_batch_for(ranks)) ++index;
  return index;
}

}  // namespace

cu::Result launch_all_reduce(const SlabSet& set, const DeviceLimits& limits, const AllReduceCall& call,
                             uint32_t number, uint64_t timeout_ns) {
  const LaunchPlan plan = plan_launch(call.count * size_of(call.type), call.type, limits);
  AllReduceParams params = set.params(plan.protocol);
  set_call(params, plan, call.send, call.recv, call.count, call.type, call.op, number);
  params.timeout_ns = timeout_ns;
  void* arguments[] = {&params};
  const Variant variant = variant_of(plan, call.op, call.send, call.recv, params.bytes);
  const cu::Function kernel = set.device().kernels[static_cast<size_t>(variant)][batch_index(params.ranks)]
                                                  [static_cast<size_t>(call.type)];
  return cu::api().launch(kernel, plan.lanes, 1, 1, block_threads(params), 1, 1, 0, call.stream,
                          arguments, nullptr);
}

}  // namespace shunt
