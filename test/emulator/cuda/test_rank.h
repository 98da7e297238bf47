// One rank of an all-reduce by the project's own kernels: its slab, its buffers, its stream. Ranks
// meet in one process (see Pair) or in several.
#pragma once

#include <vector>

#include "kernels/launch_plan.h"
#include "test_support.h"

namespace emu_test {

class Rank {
 public:
  // On GPU `rank` of this process's list.
  Rank(int rank, int ranks);
  ~Rank();
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void make_current() { CU(cuCtxSetCurrent(context_)); }
  // Where the slab of `peer` lies in this process. All peers must be known before the first launch.
  void connect(int peer, void* slab) {
    peer_slabs_[static_cast<size_t>(peer)] = static_cast<unsigned char*>(slab);
  }

  // All elements of the send buffer become `value`; those of the receive buffer become -1.
  void fill(float value);
  // A sum of floats.
  void launch(CUstream on, size_t count, uint64_t timeout_ns = 0);
  void order(shunt::HostOrder order);
  shunt::Stop stopped() const;
  // The first packet that the lowest peer sends next, as 4-byte words; all ones while it is not
  // there.
  const uint32_t* next_packet() const;
  CUfunction function(const char* name);

  CUstream stream() const { return stream_; }
  CUcontext context() const { return context_; }
  unsigned char* slab() const { return slab_; }
  const float* received() const { return recv_; }

  static constexpr size_t kCap = 65536;  // bytes

 private:
  shunt::AllReduceParams params(size_t count, const shunt::LaunchPlan& plan) const;
  unsigned char* mailbox(unsigned char* slab, uint32_t owner, uint32_t writer) const;

  const uint32_t rank_;
  const uint32_t ranks_;
  const shunt::DeviceLimits limits_{32, 4};
  const shunt::Geometry geometry_;
  std::vector<unsigned char*> peer_slabs_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUstream stream_ = nullptr;
  unsigned char* slab_ = nullptr;
  float* send_ = nullptr;
  float* recv_ = nullptr;
  shunt::HostBoard* board_ = nullptr;
  uint32_t calls_ = 0;
};

// Two ranks in one process.
struct Pair {
  Pair();
  Rank& operator[](int rank) { return rank == 0 ? first : second; }
  void fill(float value0, float value1) {
    first.fill(value0);
    second.fill(value1);
  }
  Rank first{0, 2};
  Rank second{1, 2};
};

}  // namespace emu_test
