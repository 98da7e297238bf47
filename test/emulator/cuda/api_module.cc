// Entry points: modules, functions, launches of kernels.
#include <cuda.h>

#include <cstring>

#include "capture.h"
#include "context.h"
#include "handles.h"
#include "kernel.h"
#include "report.h"
#include "settings.h"

using namespace emu;

namespace {

constexpr uint32_t kFatBinaryMagic = 0xba55ed50;
constexpr unsigned char kElfMagic[4] = {0x7f, 'E', 'L', 'F'};

bool is_image(const void* image) {
  uint32_t magic;
  std::memcpy(&magic, image, sizeof(magic));
  return magic == kFatBinaryMagic || std::memcmp(image, kElfMagic, sizeof(kElfMagic)) == 0;
}

std::shared_ptr<Function> function_of(CUfunction handle, const char* caller) {
  const Lock lock = lock_driver();
  return live_functions().find(handle, caller);
}

struct Shape {
  unsigned grid[3];
  unsigned block[3];
};

CUresult launch_kernel(const char* caller, CUfunction handle, const Shape& shape,
                       CUstream stream_handle, void** arguments) {
  Context& current = current_context();
  const std::shared_ptr<Function> function = function_of(handle, caller);
  const uint64_t blocks = uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  int most = 0;
  device_attribute(current.gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &most);
  if (blocks == 0 || threads == 0 || threads > static_cast<uint64_t>(most)) {
    misuse(CUDA_ERROR_INVALID_VALUE, "%s: %llu blocks of %llu threads, at most %d allowed", caller,
           static_cast<unsigned long long>(blocks), static_cast<unsigned long long>(threads), most);
  }
  if (blocks > shape.grid[0] || threads > shape.block[0]) return CUDA_ERROR_NOT_SUPPORTED;
  if (arguments == nullptr || arguments[0] == nullptr) return CUDA_ERROR_INVALID_VALUE;
  load(*function);
  trace_note("launch %s %llux%llu", function->kernel->name, static_cast<unsigned long long>(blocks),
             static_cast<unsigned long long>(threads));
  const auto* params = static_cast<const unsigned char*>(arguments[0]);
  auto launch = std::make_shared<Launch>(Launch{function->kernel,
                                                {params, params + function->kernel->params_bytes},
                                                static_cast<uint32_t>(blocks),
                                                static_cast<uint32_t>(threads)});
  WorkPtr work;
  {
    const Lock lock = lock_driver();
    const StreamPtr stream = stream_of(stream_handle, caller);
    if (&stream->context() != &current || &function->context != &current) {
      misuse(CUDA_ERROR_INVALID_HANDLE,
             "%s: context of GPU %d is current, stream of %d, function of %d", caller, current.gpu,
             stream->context().gpu, function->context.gpu);
    }
    work = submit(stream, {CU_GRAPH_NODE_TYPE_KERNEL,
                           [launch](const RunInfo& info) { return run_kernel(*launch, info); }});
  }
  if (work && settings().launch_blocking) work->wait();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  return call("cuModuleLoadData", [&] {
    Context& context = current_context();
    if (image == nullptr || !is_image(image)) return CUDA_ERROR_INVALID_IMAGE;
    if (settings().no_kernel_image) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const Lock lock = lock_driver();
    check_unsafe();
    *handle = live_modules().add(std::make_shared<Module>(Module{context}));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned /*options*/,
                            CUjit_option* /*names*/, void** /*values*/) {
  return cuModuleLoadData(handle, image);
}

CUresult cuModuleUnload(CUmodule handle) {
  return call("cuModuleUnload", [&] {
    const Lock lock = lock_driver();
    check_unsafe();
    const std::shared_ptr<Module> module = live_modules().remove(handle, "cuModuleUnload");
    for (const auto& [name, function] : module->functions) {
      live_functions().remove(function, "cuModuleUnload");
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  return call("cuModuleGetFunction", [&] {
    const shunt::host::HostKernel* kernel = shunt::host::find_kernel(name);
    if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
    const Lock lock = lock_driver();
    Module& module = *live_modules().find(module_handle, "cuModuleGetFunction");
    CUfunction& known = module.functions[name];
    if (known == nullptr) {
      known = live_functions().add(std::shared_ptr<Function>(
          new Function{module.context, kernel, !settings().lazy_loading}));
    }
    *handle = known;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncLoad(CUfunction handle) {
  return call("cuFuncLoad", [&] {
    load(*function_of(handle, "cuFuncLoad"));
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  return call("cuFuncGetAttribute", [&] {
    const std::shared_ptr<Function> function = function_of(handle, "cuFuncGetAttribute");
    load(*function);
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        device_attribute(function->context.gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, value);
        break;
      case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = 32;
        break;
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = 90;
        break;
      default:
        *value = 0;
        break;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned /*shared_bytes*/, CUstream stream, void** arguments,
                        void** /*extra*/) {
  return call("cuLaunchKernel", [&] {
    return launch_kernel("cuLaunchKernel", function,
                         {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}}, stream,
                         arguments);
  });
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** arguments,
                          void** /*extra*/) {
  return call("cuLaunchKernelEx", [&] {
    return launch_kernel("cuLaunchKernelEx", function,
                         {{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ}},
                         config->hStream, arguments);
  });
}

}  // extern "C"
