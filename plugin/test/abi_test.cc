// Sizes and offsets as each version's header gives them on a 64-bit machine, as plain numbers: a
// field added, dropped or moved in abi.h is found here, whatever its own static_asserts say.
#include "plugin/abi.h"

#include <cstddef>

#include "test/catch.h"

using namespace shunt::tuner::abi;

TEST_CASE("versions 2, 3 and 4: name, init, getCollInfo, destroy") {
  CHECK(sizeof(TunerV2) == 32);
  CHECK(offsetof(TunerV2, name) == 0);
  CHECK(offsetof(TunerV2, init) == 8);
  CHECK(offsetof(TunerV2, get_coll_info) == 16);
  CHECK(offsetof(TunerV2, destroy) == 24);
  CHECK(sizeof(TunerV3) == 32);
  CHECK(offsetof(TunerV3, init) == 8);
  CHECK(offsetof(TunerV3, get_coll_info) == 16);
  CHECK(offsetof(TunerV3, destroy) == 24);
  CHECK(sizeof(TunerV4) == 32);
  CHECK(offsetof(TunerV4, init) == 8);
  CHECK(offsetof(TunerV4, get_coll_info) == 16);
  CHECK(offsetof(TunerV4, destroy) == 24);
}

TEST_CASE("versions 5 and 6: finalize, and the function for chunk sizes last") {
  CHECK(sizeof(TunerV5) == 32);
  CHECK(offsetof(TunerV5, init) == 8);
  CHECK(offsetof(TunerV5, get_coll_info) == 16);
  CHECK(offsetof(TunerV5, finalize) == 24);
  CHECK(sizeof(TunerV6) == 40);
  CHECK(offsetof(TunerV6, init) == 8);
  CHECK(offsetof(TunerV6, get_coll_info) == 16);
  CHECK(offsetof(TunerV6, finalize) == 24);
  CHECK(offsetof(TunerV6, get_chunk_size) == 32);
}

TEST_CASE("what init of versions 5 and 6 is handed") {
  CHECK(sizeof(NvlDomainsV5) == 12);
  CHECK(offsetof(NvlDomainsV5, fewest_ranks) == 4);
  CHECK(offsetof(NvlDomainsV5, most_ranks) == 8);
  CHECK(sizeof(ConstantsV5) == 1152);
  CHECK(offsetof(ConstantsV5, hardware_latencies) == 168);
  CHECK(offsetof(ConstantsV5, ll_bandwidths) == 672);
  CHECK(offsetof(ConstantsV5, ring_ll128_bandwidths) == 768);
  CHECK(offsetof(ConstantsV5, tree_ll128_bandwidths) == 864);
  CHECK(offsetof(ConstantsV5, tree_bandwidths) == 960);
  CHECK(offsetof(ConstantsV5, nvls_tree_bandwidths) == 1056);
}

TEST_CASE("numbers that NCCL hands over") {
  CHECK((kAllGather == 2 && kReduceScatter == 3 && kAllReduce == 4));
  CHECK((kTree == 0 && kRing == 1 && kCollnetDirect == 2 && kCollnetChain == 3));
  CHECK((kNvls == 4 && kNvlsTree == 5 && kPat == 6));
  CHECK((kLl == 0 && kLl128 == 1 && kSimple == 2));
  CHECK(kIgnore == -1.0f);
  CHECK((kLogWarn == 2 && kLogInfo == 3 && kSubsystemInit == 1 && kSubsystemTuning == 64));
}
