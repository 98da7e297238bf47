// One GPU as this process sees it: primary context, identity, limits, loaded kernels.
#pragma once

#include <string>

#include "kernels/launch_plan.h"
#include "shim/engine/driver_api.h"

namespace shunt {

struct GpuDevice {
  cu::Device ordinal = 0;
  cu::Context context = nullptr;  // the primary context; retained for the life of the process
  unsigned long long context_id = 0;
  cu::Uuid uuid{};
  int compute_major = 0;
  int compute_minor = 0;
  int numa_node = -1;  // of the socket that it hangs on; -1: not known
  DeviceLimits limits{};
  // Kernels by [variant][index into kPeerBatches][datatype], all loaded: a lazy load behind a spinning kernel
  // deadlocks.
  cu::Function kernels[kVariants][3][kDataTypes] = {};
  cu::Function hold = nullptr;
};

// False once its context was reset (cudaDeviceReset, whatever others have retained): with it went memory, events
// and kernels, and the handles of them may crash the driver. Drivers before CUDA 12 do not tell.
bool context_lives(const GpuDevice& device) noexcept;

// Made when first asked for, without kernels, and anew after a reset; the old one stays. Throws cu::Error.
// Thread-safe.
const GpuDevice& gpu_device(cu::Device ordinal);
// Loads the kernels, once for each device; throws cu::Error ("no kernel image" included). Thread-safe.
void load_kernels(const GpuDevice& device);

// Whether NVML says that the two GPUs are joined by NVLink. kUnknown: no NVML, or it does not know them.
enum class NvLink { kYes, kNo, kUnknown };
NvLink nvlink_between(const unsigned char (&a)[16], const unsigned char (&b)[16]);

// Ordinal of the GPU with this UUID among those that this process sees, or -1.
cu::Device ordinal_of(const unsigned char (&uuid)[16]);

}  // namespace shunt
