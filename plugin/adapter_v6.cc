// Tuner interface 6: NCCL 2.30 (2026-04).
#include "plugin/adapter.h"

namespace shunt::tuner {
namespace {

// The constants of NCCL's model stay as they are: a changed one would move every other choice too.
abi::Result init(void** context, uint64_t /*communicator*/, size_t ranks, size_t nodes,
                 abi::Logger log, abi::NvlDomainsV5* /*domains*/, abi::ConstantsV5* /*constants*/) {
  *context = open_communicator({ranks, nodes, log});
  return abi::kSuccess;
}

abi::Result get_coll_info(void* context, int function, size_t bytes, int /*pipelined*/,
                          float** costs, int algorithms, int protocols, int /*registered*/,
                          int* channels) {
  return ask_for_table(context, function, bytes, costs, algorithms, protocols, channels);
}

}  // namespace
}  // namespace shunt::tuner

SHUNT_TUNER_EXPORT const shunt::tuner::abi::TunerV6 ncclTunerPlugin_v6 = {
    shunt::tuner::kTunerName, shunt::tuner::init, shunt::tuner::get_coll_info,
    shunt::tuner::close_tuner, nullptr /* chunk sizes are NCCL's */};
