// The facts of a fingerprint, from NVML and from the process.
#pragma once

#include <string>

#include "plugin/fingerprint.h"

namespace shunt::tuner {

// GPUs, links and driver; the rest of the fingerprint is left empty. Throws std::runtime_error with
// the reason, one line, where they cannot be told. NVML looks at no CUDA_VISIBLE_DEVICES, so ranks
// that see different GPUs still find the same.
Fingerprint machine_facts();

// The same, and more of it for people.
struct MachineDetails {
  Fingerprint facts;
  std::vector<std::string>
      bus_ids;  // of each GPU as sysfs names it, "0000:1a:00.0"; empty: not told
  std::vector<std::string>
      no_p2p;  // of each pair: why the driver allows no peer access; empty: it does
};
MachineDetails machine_details();

// "2.28.9" of the NCCL that `address` lies in (its logger, say); empty: cannot be told.
std::string nccl_version_at(const void* address);

// "2.28.9" of ncclGetVersion's number.
std::string nccl_version_text(int version);

}  // namespace shunt::tuner
