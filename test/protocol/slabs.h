// The ranks' slabs and boards in the simulated memory, and the parameters of a kernel over them:
// what the library's preparing and launching do, without a driver.
#pragma once

#include <string>
#include <vector>

#include "kernels/host_runtime.h"
#include "kernels/launch_plan.h"
#include "test/protocol/machine.h"

namespace sim {

struct Call {
  shunt::DataType type;
  shunt::ReduceOp op;
  uint64_t count;
  uint32_t number;  // in the order of recording

  size_t bytes() const { return count * size_of(type); }
  shunt::Protocol protocol() const { return protocol_of(type); }
  uint32_t packets() const { return shunt::packets_for(protocol(), bytes()); }
};
// One, or several of one type and operation that are one kernel.
using Calls = std::vector<Call>;

// Where one message lies on one rank.
struct MessageAt {
  const void* send;
  void* recv;
};

class Slabs {
 public:
  Slabs(uint32_t ranks, size_t cap, const shunt::DeviceLimits& limits, shunt::Placement placement);

  size_t memory_bytes() const { return ranks_ * (slab_bytes_ + kBoardBytes); }
  // Where they lie: memory_bytes() of zeros.
  void attach(unsigned char* memory) { memory_ = memory; }
  // Fresh slabs: sentinel regions all ones, everything else zero, lane l at first_counters[l].
  void fill(const std::vector<uint32_t>& first_counters);

  uint32_t ranks() const { return ranks_; }
  size_t cap() const { return cap_; }
  const shunt::Geometry& geometry() const { return geometry_; }
  const shunt::DeviceLimits& limits() const { return limits_; }
  shunt::LaneState& lane(uint32_t rank, uint32_t lane) const;
  uint32_t& stop(uint32_t rank) const;
  shunt::HostBoard& board(uint32_t rank) const;

  shunt::GroupedParams params(const Calls& calls, uint32_t rank, const std::vector<MessageAt>& where) const;
  shunt::LaunchPlan plan(const Calls& calls) const;
  std::string describe(const void* address) const;

 private:
  static constexpr size_t kBoardBytes = sizeof(shunt::HostBoard);
  unsigned char* slab(uint32_t rank) const { return memory_ + rank * slab_bytes_; }
  // Outboxes in host memory lie in the slab here too.
  unsigned char* mailbox(uint32_t reader, uint32_t writer) const {
    return is_shared(geometry_.placement)
               ? slab(writer) + geometry_.mailbox_offset(0)
               : slab(reader) + geometry_.mailbox_offset(shunt::peer_index(reader, writer));
  }

  uint32_t ranks_;
  size_t cap_;
  shunt::DeviceLimits limits_;
  shunt::Geometry geometry_;
  size_t slab_bytes_;
  unsigned char* memory_ = nullptr;
};

}  // namespace sim
