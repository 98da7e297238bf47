// Device and pinned memory for preparing. It is kept for the next communicator, never freed: freeing waits
// for the whole device, and a kernel there may be waiting for a peer that is waiting for us.
#pragma once

#include "shim/engine/device.h"

namespace shunt {

class Scratch {
 public:
  // `bytes` of device memory and as much pinned memory; throws cu::Error. `needed`: without it this rank
  // could not even say no. Then pageable memory will do where pinned memory has run out, and where device
  // memory has, device() is the device's address of the pinned memory.
  Scratch(const GpuDevice& device, size_t bytes, bool needed = false);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  cu::Ptr device() const { return blocks_.device; }
  unsigned char* host() const { return blocks_.host; }
  bool shared() const { return blocks_.shared; }  // device() and host() are the same memory

  struct Blocks {
    const GpuDevice* owner = nullptr;
    size_t bytes = 0;
    cu::Ptr device = 0;
    unsigned char* host = nullptr;
    bool shared = false;
  };

 private:
  Blocks blocks_;
};

}  // namespace shunt
