// One rank's user buffers for one recorded call: any element alignment, guard bytes around both.
#pragma once

#include <string>

#include "test/protocol/numbers.h"
#include "test/protocol/slabs.h"

namespace sim {

// How much of a result may be missing.
enum class Demand { kAll, kRightOrUntouched, kUntouched };

class Buffers {
 public:
  // Shifts in elements from a 16-byte address; they and in-place-ness may differ between ranks.
  Buffers(const Call& call, uint32_t send_shift, uint32_t recv_shift, bool in_place);

  const void* send() const { return in_place_ ? recv() : send_.data() + send_at_; }
  void* recv() const { return const_cast<unsigned char*>(recv_.data()) + recv_at_; }
  // Before each launch: new input, poisoned output.
  void prepare(const Bytes& input);
  // After it. Empty: all is as it must be.
  std::string check(const Bytes& input, const Bytes& expected, Demand demand) const;

 private:
  std::string check_guards(const Bytes& storage, size_t at) const;

  Call call_;
  bool in_place_;
  size_t send_at_, recv_at_;
  Bytes send_, recv_;
};

}  // namespace sim
