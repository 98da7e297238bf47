// The device buffers of one rank for one case: `sets` pairs of a send and a receive buffer. Around
// each lie guard bytes. In place, a set is one buffer, and the inputs are kept apart to be copied
// in again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/bench/cases.h"
#include "tools/worker/driver.h"

namespace shunt::bench {

class Buffers {
 public:
  Buffers(const Options& options, const Case& c, uint32_t rank);

  uint32_t sets() const { return sets_; }
  const void* send(uint32_t set) const;
  void* receive(uint32_t set) const;

  // All asynchronous on `stream`; `input` must stay until the stream is synchronized.
  void load(CUstream stream, std::span<const std::byte> input);
  // Poisons receive buffers and guards; in place, then copies the inputs in; then flushes the L2
  // cache if the options want that.
  void prepare(CUstream stream, uint8_t poison);

  // After a synchronized call: the output of a set. Appends to `faults` what should not have
  // changed and did. Blocks.
  std::vector<std::byte> take(CUstream stream, uint32_t set, uint8_t poison,
                              std::span<const std::byte> input, std::string& faults) const;

 private:
  static constexpr uint64_t kGuard = 256;

  CUdeviceptr send_slot(uint32_t set) const { return send_.get() + set * slot_; }
  CUdeviceptr receive_slot(uint32_t set) const { return receive_.get() + set * slot_; }
  CUdeviceptr source(uint32_t set) const { return send_slot(set) + kGuard + send_offset_; }
  CUdeviceptr target(uint32_t set) const { return receive_slot(set) + kGuard + receive_offset_; }

  bool in_place_;
  uint64_t bytes_;
  uint64_t cold_bytes_;
  uint64_t send_offset_ = 0;
  uint64_t receive_offset_ = 0;
  uint64_t slot_ = 0;
  uint32_t sets_ = 1;
  DeviceMemory send_;
  DeviceMemory receive_;
  DeviceMemory flush_;
};

}  // namespace shunt::bench
