// Broken fabric: stores of one launch that vanish or arrive changed (EMU_DROP, EMU_CORRUPT).
#pragma once

#include <cstdint>
#include <vector>

#include "packet.h"
#include "stream.h"

namespace emu {

struct Launch;

class LaunchFaults {
 public:
  // `launches`: of this process so far.
  LaunchFaults(const Launch& launch, const RunInfo& info, uint64_t launches);

  bool any() const { return !drops_.empty() || !corrupts_.empty(); }
  // Of a packet on its way to `gpu`. False: it never arrives.
  bool apply(const void* address, int gpu, Packet* packet);

 private:
  // Changed bytes go into data: a changed header would be a mismatch of calls, another fault.
  bool carries_data(const void* address) const;

  const Launch& launch_;
  const int from_;
  std::vector<int> drops_;     // GPUs that nothing reaches; -1: none but the own
  std::vector<int> corrupts_;  // GPUs that one packet of this launch reaches changed
};

}  // namespace emu
