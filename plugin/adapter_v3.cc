// Tuner interface 3: NCCL 2.22 (2024-06).
#include "plugin/adapter.h"

namespace shunt::tuner {
namespace {

abi::Result init(size_t ranks, size_t nodes, abi::Logger log, void** context) {
  *context = open_communicator({ranks, nodes, log});
  return abi::kSuccess;
}

abi::Result get_coll_info(void* context, int function, size_t bytes, int /*pipelined*/,
                          float** costs, int algorithms, int protocols, int* channels) {
  return ask_for_table(context, function, bytes, costs, algorithms, protocols, channels);
}

}  // namespace
}  // namespace shunt::tuner

SHUNT_TUNER_EXPORT const shunt::tuner::abi::TunerV3 ncclTunerPlugin_v3 = {
    shunt::tuner::kTunerName, shunt::tuner::init, shunt::tuner::get_coll_info,
    shunt::tuner::close_tuner};
