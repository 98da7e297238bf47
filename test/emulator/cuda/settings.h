// What the environment says about the emulated machine. Read once, at the first use; README.md has
// the list. Everything here is in physical GPU numbers, whatever CUDA_VISIBLE_DEVICES says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emu {

// An ordered pair of GPUs; -1 stands for any.
struct GpuPair {
  int from;
  int to;
  bool covers(int a, int b) const { return (from < 0 || from == a) && (to < 0 || to == b); }
};

// A fault of the stores from one GPU to another.
struct StoreFault {
  GpuPair pair;
  size_t above = 0;         // only in launches that reduce more bytes than this
  uint64_t after = 0;       // only after this many launches of the process
  bool graph_only = false;  // only in graph replays
  std::string kernel;       // only in kernels whose name has this
};

struct KernelDelay {
  int gpu;
  uint32_t at_most_us;
};

struct Settings {
  int gpus = 8;
  size_t memory = size_t{1} << 30;  // bytes of one GPU
  uint64_t hostile = 0;             // seed; 0: stores arrive at once and in order
  std::vector<StoreFault> drop;
  std::vector<StoreFault> corrupt;
  std::vector<GpuPair> no_p2p;
  std::vector<GpuPair> nvlink;
  std::vector<int> ipc_fail;
  std::vector<KernelDelay> delays;
  bool no_ipc = false;
  bool host_alloc_fail = false;
  bool no_kernel_image = false;
  bool strict = true;
  bool lazy_loading = true;
  bool launch_blocking = false;
  size_t alloc_fail_above = SIZE_MAX;
  std::string trace;  // file; empty: none
};

const Settings& settings();

// The number in variable `name`, or `otherwise`.
long long number_from_environment(const char* name, long long otherwise);

}  // namespace emu
