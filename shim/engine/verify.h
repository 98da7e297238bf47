// SHUNT_VERIFY: now and then an eager shunted call is run by NCCL too, and the results are
// compared. Where they differ by more than rounding, the user gets NCCL's result, all ranks say
// what they had, and the communicator forwards from then on. All ranks verify the same calls and
// learn of a difference in the same call, by an all-reduce of NCCL's, so no rank ever decides
// alone. The host waits.
#pragma once

#include <nccl.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shim/engine/compare.h"
#include "shim/engine/launch.h"
#include "shim/engine/scratch.h"

namespace shunt {

class Communicator;
class Verifier;

// One call of one rank.
class Verification {
 public:
  // Call `which` of those that kernel `number` runs together. Takes memory; throws cu::Error.
  Verification(Communicator& communicator, std::span<const AllReduceCall> calls, size_t which,
               uint32_t number, const GpuDevice& device);

  // In front of the shunted call, which may be in place: the input is put by. The context must be
  // current.
  cu::Result keep_input();

  const Communicator& communicator() const { return communicator_; }
  // It will not be verified; the copy of its input may still be under way.
  void abandon() { (void)scratch_.release(); }

 private:
  friend class Verifier;
  friend ncclResult_t verify(std::span<const std::unique_ptr<Verification>> all) noexcept;
  size_t bytes() const { return call_.count * size_of(call_.type); }
  // Parts of the scratch memory, which has a device and a host side. The device's input becomes
  // NCCL's result.
  cu::Ptr work() const { return scratch_->device(); }
  cu::Ptr shared() const { return scratch_->device() + 3 * part_; }
  unsigned char* theirs() const { return scratch_->host(); }
  unsigned char* ours() const { return scratch_->host() + part_; }
  unsigned char* input() const { return scratch_->host() + 2 * part_; }
  unsigned char* host_shared() const { return scratch_->host() + 3 * part_; }
  // Elements whose reference is made at once, an array of doubles and one more.
  size_t chunk() const;
  size_t reference_bytes() const { return 2 * chunk() * sizeof(double); }
  void say() const;

  Communicator& communicator_;
  const AllReduceCall call_;  // its stream is that of the kernel
  const uint32_t number_;
  const size_t which_, together_;
  const LaunchPlan plan_;
  const size_t part_;
  const GpuDevice& device_;
  std::unique_ptr<Scratch> scratch_;
  Wrong wrong_{};
  size_t agreed_ = 0;  // the first element that differs on any rank, and one; 0: none
};

// Runs the verifications of one thread, those of several ranks of one communicator in lock-step:
// NCCL waits for all of them. Not while a group of NCCL's is open, nor with a lock held. Returns an
// error of NCCL's.
ncclResult_t verify(std::span<const std::unique_ptr<Verification>> all) noexcept;

using Verifications = std::vector<std::unique_ptr<Verification>>;

}  // namespace shunt
