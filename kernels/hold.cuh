// Holds a stream back until the host lets it go, so that what is queued behind runs without gaps: for timing.
#pragma once

#include "kernels/device_access.cuh"

namespace shunt {

// One thread.
SHUNT_DEVICE void hold(const HoldParams& params) {
  const uint64_t start = device::clock_ns();
  while (device::load_word(params.go) == 0 && device::clock_ns() - start < params.limit_ns) {
    device::pause();
    device::sleep_ns(200);
  }
}

}  // namespace shunt
