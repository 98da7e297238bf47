// The facts of a fingerprint, from NVML and from the process.
#pragma once

#include <string>

#include "plugin/fingerprint.h"

namespace shunt::tuner {

// GPUs, links and driver; the rest of the fingerprint is left empty. Throws std::runtime_error with
// the reason, one line, where they cannot be told. NVML looks at no CUDA_VISIBLE_DEVICES, so ranks
// that see different GPUs still find the same.
Fingerprint machine_facts();

// "2.28.9" of the NCCL that `address` lies in (its logger, say); empty: cannot be told.
std::string nccl_version_at(const void* address);

// "2.28.9" of ncclGetVersion's number.
std::string nccl_version_text(int version);

}  // namespace shunt::tuner
