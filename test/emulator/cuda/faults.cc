#include "faults.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "context.h"
#include "kernel.h"
#include "kernels/protocol.h"
#include "settings.h"

namespace emu {
namespace {

bool is_all_reduce(const Launch& launch) {
  return launch.params.size() == sizeof(shunt::AllReduceParams) ||
         launch.params.size() == sizeof(shunt::GroupedParams);
}

shunt::AllReduceParams params_of(const Launch& launch) {
  shunt::AllReduceParams params;
  std::memcpy(&params, launch.params.data(), sizeof(params));  // a group's begin with them
  return params;
}

size_t bytes_of(const Launch& launch) {
  if (!is_all_reduce(launch)) return 0;
  const shunt::AllReduceParams params = params_of(launch);
  return params.bytes;
}

std::vector<int> active(const std::vector<StoreFault>& faults, const Launch& launch,
                        const RunInfo& info, uint64_t launches) {
  std::vector<int> targets;
  for (const StoreFault& fault : faults) {
    if (!fault.pair.covers(info.context.gpu, fault.pair.to) || launches < fault.after ||
        (fault.graph_only && !info.in_graph) ||
        std::string_view(launch.kernel->name).find(fault.kernel) == std::string_view::npos ||
        (fault.above > 0 && bytes_of(launch) <= fault.above)) {
      continue;
    }
    targets.push_back(fault.pair.to);
  }
  return targets;
}

bool covers(int target, int gpu, int from) { return target < 0 ? gpu != from : target == gpu; }

bool has_all_ones(uint64_t word) {
  return static_cast<uint32_t>(word) == 0xffffffffu || word >> 32 == 0xffffffffu;
}

}  // namespace

LaunchFaults::LaunchFaults(const Launch& launch, const RunInfo& info, uint64_t launches)
    : launch_(launch),
      from_(info.context.gpu),
      drops_(active(settings().drop, launch, info, launches)),
      corrupts_(active(settings().corrupt, launch, info, launches)) {}

bool LaunchFaults::apply(const void* address, int gpu, Packet* packet) {
  if (gpu < 0) return true;  // host memory
  for (int target : drops_) {
    if (covers(target, gpu, from_)) return false;
  }
  for (auto target = corrupts_.begin(); target != corrupts_.end(); ++target) {
    if (!covers(*target, gpu, from_) || !carries_data(address)) continue;
    // Never into a word of all ones, which would be a lost store and not a changed one.
    packet->low ^= has_all_ones(packet->low ^ 0x20) ? 0x40 : 0x20;
    corrupts_.erase(target);
    break;
  }
  return true;
}

bool LaunchFaults::carries_data(const void* address) const {
  if (!is_all_reduce(launch_)) return true;
  const shunt::AllReduceParams params = params_of(launch_);
  const auto* at = static_cast<const unsigned char*>(address);
  for (uint32_t i = 0; i + 1 < params.ranks && i < shunt::kMaxPeers; ++i) {
    const unsigned char* mailbox = params.peers[i].write;
    if (at < mailbox || at >= mailbox + size_t{params.parts} * params.part_bytes) continue;
    const size_t within = static_cast<size_t>(at - mailbox) % params.part_bytes;
    return within >= std::min(params.data_offset, params.flagged_offset);
  }
  return false;
}

}  // namespace emu
