#include "shim/engine/launch.h"

namespace shunt {
namespace {

size_t batch_index(uint32_t ranks) {
  size_t index = 0;
  while (kPeerBatches[index] != peer_batch_for(ranks)) ++index;
  return index;
}

cu::Result launch(const SlabSet& set, Variant variant, DataType type, const AllReduceParams& params,
                  void* argument, cu::Stream stream) {
  const cu::Function kernel =
      set.device().kernels[static_cast<size_t>(variant)][batch_index(params.ranks)]
                          [static_cast<size_t>(type)];
  return cu::api().launch(kernel, params.lanes, 1, 1, block_threads(params), 1, 1, 0, stream,
                          &argument, nullptr);
}

cu::Result launch_grouped(const SlabSet& set, const DeviceLimits& limits,
                          std::span<const AllReduceCall> calls, uint32_t number,
                          uint64_t timeout_ns) {
  const DataType type = calls.front().type;
  GroupedParams params;
  static_cast<AllReduceParams&>(params) = set.params(protocol_of(type));
  params.message_count = 0;
  for (const AllReduceCall& call : calls) {
    add_message(params, protocol_of(type), call.send, call.recv, call.count * size_of(type));
  }
  const LaunchPlan plan = plan_all_reduce(calls, limits);
  set_grouped_call(params, plan, type, calls.front().op, number);
  params.timeout_ns = timeout_ns;
  return launch(set, Variant::kGrouped, type, params, &params, calls.front().stream);
}

}  // namespace

LaunchPlan plan_all_reduce(std::span<const AllReduceCall> calls, const DeviceLimits& limits) {
  const DataType type = calls.front().type;
  if (calls.size() == 1) return plan_launch(calls.front().count * size_of(type), type, limits);
  const Protocol protocol = protocol_of(type);
  uint32_t packets = 0;  // each message has its own
  for (const AllReduceCall& call : calls)
    packets += packets_for(protocol, call.count * size_of(type));
  return plan_launch(size_t{packets} * payload_of(protocol), type, limits);
}

cu::Result launch_all_reduce(const SlabSet& set, const DeviceLimits& limits,
                             std::span<const AllReduceCall> calls, uint32_t number,
                             uint64_t timeout_ns) {
  if (calls.size() > 1) return launch_grouped(set, limits, calls, number, timeout_ns);
  const AllReduceCall& call = calls.front();
  const LaunchPlan plan = plan_all_reduce(calls, limits);
  AllReduceParams params = set.params(plan.protocol);
  set_call(params, plan, call.send, call.recv, call.count, call.type, call.op, number);
  params.timeout_ns = timeout_ns;
  const Variant variant = variant_of(plan, call.op, call.send, call.recv, params.bytes);
  return launch(set, variant, call.type, params, &params, call.stream);
}

}  // namespace shunt
