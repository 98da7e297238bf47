// A plugin with the faults that the host test must find: it takes an entry that is ruled out, has
// an opinion about every collective and number of machines, and exports something more.
#include <cstddef>

#include "plugin/abi.h"

namespace abi = shunt::tuner::abi;

namespace {

abi::Result init(void** context, uint64_t, size_t, size_t, abi::Logger, abi::NvlDomainsV5*,
                 abi::ConstantsV5* constants) {
  *context = nullptr;
  constants->tree_bandwidths[0][0] = 1;
  return abi::kSuccess;
}

abi::Result get_coll_info(void*, int, size_t, int, float** costs, int, int, int, int* channels) {
  reinterpret_cast<float*>(costs)[1] = 0;
  *channels = 3;
  return abi::kSuccess;
}

abi::Result finalize(void*) { return abi::kSuccess; }

}  // namespace

extern "C" __attribute__((visibility("default")))
const abi::TunerV5 ncclTunerPlugin_v5 = {"broken", init, get_coll_info, finalize};
extern "C" __attribute__((visibility("default"))) void something_more() {}
