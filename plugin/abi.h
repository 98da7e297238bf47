// NCCL's tuner interface, versions 2 to 6, as memory: written from the published declarations (NCCL
// "Tuner Plugin" documentation and ext-tuner). Function pointers, sizes and order are what NCCL
// relies on; names are ours.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shunt::tuner::abi {

using Result = int;  // ncclResult_t; anything but kSuccess from init makes the communicator fail
inline constexpr Result kSuccess = 0;

// ncclDebugLogger_t: printf-like, filtered by NCCL_DEBUG and NCCL_DEBUG_SUBSYS.
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr unsigned long kSubsystemInit = 0x1;
inline constexpr unsigned long kSubsystemTuning = 0x40;

// ncclFunc_t. Other values exist (broadcast 0, reduce 1, all-to-all 8, ...).
inline constexpr int kAllGather = 2;
inline constexpr int kReduceScatter = 3;
inline constexpr int kAllReduce = 4;

// Rows and columns of the cost table. NCCL up to 2.23 has six algorithms (no PAT).
inline constexpr int kTree = 0;
inline constexpr int kRing = 1;
inline constexpr int kCollnetDirect = 2;
inline constexpr int kCollnetChain = 3;
inline constexpr int kNvls = 4;
inline constexpr int kNvlsTree = 5;
inline constexpr int kPat = 6;
inline constexpr int kAlgorithms = 7;
inline constexpr int kLl = 0;
inline constexpr int kLl128 = 1;
inline constexpr int kSimple = 2;
inline constexpr int kProtocols = 3;
inline constexpr float kIgnore = -1.0f;  // cost of what NCCL will not run

// NCCL 2.21 (2024-03): the plugin names an algorithm and a protocol, and is not told which ones are
// possible. No limit of *channels.
struct TunerV2 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int collnet_support,
                          int nvls_support, int pipelined, int* algorithm, int* protocol,
                          int* channels);
  Result (*destroy)(void* context);
};

// NCCL 2.22 (2024-06): a table of costs instead. `costs` is declared float** and is really the
// address of float[algorithms][protocols].
struct TunerV3 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** costs,
                          int algorithms, int protocols, int* channels);
  Result (*destroy)(void* context);
};

// NCCL 2.24 (2024-12): also tells whether the buffers can be registered.
struct TunerV4 {
  const char* name;
  Result (*init)(size_t ranks, size_t nodes, Logger log, void** context);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** costs,
                          int algorithms, int protocols, int registered, int* channels);
  Result (*destroy)(void* context);
};

struct NvlDomainsV5 {
  int domains;
  int fewest_ranks;
  int most_ranks;
};

// The constants of NCCL's own model, which init may change. This plugin does not.
struct ConstantsV5 {
  double base_latencies[kAlgorithms][kProtocols];
  double hardware_latencies[3][kAlgorithms][kProtocols];  // NVLink, PCI, network
  double ll_bandwidths[4][3];                             // by compute capability and node count
  double ring_ll128_bandwidths[4][3];
  double tree_ll128_bandwidths[4][3];
  double tree_bandwidths[4][3];
  double nvls_tree_bandwidths[4][3];
};

// NCCL 2.28 (2025-09): init's context comes first, and more is told; destroy is now finalize.
struct TunerV5 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, Logger log,
                 NvlDomainsV5* domains, ConstantsV5* constants);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** costs,
                          int algorithms, int protocols, int registered, int* channels);
  Result (*finalize)(void* context);
};

// NCCL 2.30 (2026-04): an optional last function may change the chunk size. Null: NCCL's own.
struct TunerV6 {
  const char* name;
  Result (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, Logger log,
                 NvlDomainsV5* domains, ConstantsV5* constants);
  Result (*get_coll_info)(void* context, int function, size_t bytes, int pipelined, float** costs,
                          int algorithms, int protocols, int registered, int* channels);
  Result (*finalize)(void* context);
  Result (*get_chunk_size)(void* context, int function, size_t bytes, int algorithm, int protocol,
                           int channels, size_t* chunk_size);
};

// NCCL reads these at fixed places: a field too many and it calls the wrong function.
static_assert(sizeof(TunerV2) == 4 * sizeof(void*) && offsetof(TunerV2, destroy) == 24);
static_assert(sizeof(TunerV3) == 4 * sizeof(void*) && offsetof(TunerV3, destroy) == 24);
static_assert(sizeof(TunerV4) == 4 * sizeof(void*) && offsetof(TunerV4, destroy) == 24);
static_assert(sizeof(TunerV5) == 4 * sizeof(void*) && offsetof(TunerV5, finalize) == 24);
static_assert(sizeof(TunerV6) == 5 * sizeof(void*) && offsetof(TunerV6, get_chunk_size) == 32);
static_assert(sizeof(NvlDomainsV5) == 12);
static_assert(sizeof(ConstantsV5) == (21 + 63 + 5 * 12) * sizeof(double));

}  // namespace shunt::tuner::abi
