// Tuner interface 2: NCCL 2.21 (2024-03).
#include <algorithm>
#include <iterator>

#include "plugin/adapter.h"

namespace shunt::tuner {
namespace {

abi::Result init(size_t ranks, size_t nodes, abi::Logger log, void** context) {
  *context = open_communicator({ranks, nodes, log});
  return abi::kSuccess;
}

// This version shows no table. The one made here allows what every single-node communicator has:
// not LL128, for NCCL 2.21 runs what it is told, safe or not. Nor does it limit the channels.
abi::Result get_coll_info(void* context, int function, size_t bytes, int /*collnet_support*/,
                          int nvls_support, int /*pipelined*/, int* algorithm, int* protocol,
                          int* /*channels*/) {
  float costs[abi::kAlgorithms][abi::kProtocols];
  std::fill_n(&costs[0][0], abi::kAlgorithms * abi::kProtocols, abi::kIgnore);
  costs[abi::kRing][abi::kLl] = costs[abi::kRing][abi::kSimple] = 2;
  if (function == abi::kAllReduce) {
    costs[abi::kTree][abi::kLl] = costs[abi::kTree][abi::kSimple] = 2;
  }
  if (nvls_support != 0) costs[abi::kNvls][abi::kSimple] = 2;
  CostTable table(&costs[0][0], abi::kAlgorithms, abi::kProtocols);
  const Wish wish = ask(context, {function, bytes}, table);
  const bool known =
      !wish.empty() && costs[wish.algorithm][wish.protocol] >= 0 && wish.protocol != abi::kLl128;
  if (!known || algorithm == nullptr || protocol == nullptr) return abi::kSuccess;
  *algorithm = wish.algorithm;
  *protocol = wish.protocol;
  return abi::kSuccess;
}

}  // namespace
}  // namespace shunt::tuner

SHUNT_TUNER_EXPORT const shunt::tuner::abi::TunerV2 ncclTunerPlugin_v2 = {
    shunt::tuner::kTunerName, shunt::tuner::init, shunt::tuner::get_coll_info,
    shunt::tuner::close_tuner};
