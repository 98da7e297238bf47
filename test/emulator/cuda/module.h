// Modules and their functions.
#pragma once

#include <cuda.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "kernels/host_runtime.h"

namespace emu {

struct Context;

struct Function {
  Context& context;
  const shunt::host::HostKernel* kernel;
  // Code on the GPU. Loading it waits for the kernels that run there, see load().
  std::atomic<bool> loaded;
};

struct Module {
  Context& context;
  std::map<std::string, CUfunction> functions{};
};

// Puts the function on its GPU. As with CUDA_MODULE_LOADING=LAZY, a load waits until no kernel runs
// there: a program that first launches a kernel behind one that waits for it hangs here too.
void load(Function& function);

}  // namespace emu
