// The only source of chance in the simulation: a seed reproduces a run exactly.
#pragma once

#include <cstdint>

namespace sim {

// SplitMix64 (Steele, Lea, Flood 2014).
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // 0 <= result < n; n < 2^32.
  uint32_t below(uint64_t n) { return static_cast<uint32_t>((next() >> 32) * n >> 32); }
  bool of256(uint32_t share) { return below(256) < share; }
  template <typename T, uint32_t kCount>
  T one_of(const T (&values)[kCount]) {
    return values[below(kCount)];
  }

 private:
  uint64_t state_;
};

// Something that happens about once in `period` ticks; never if 0.
class Rate {
 public:
  explicit Rate(uint32_t period = 0) : period_(period), left_(period) {}
  bool tick(Rng& rng) {
    if (period_ == 0 || --left_ != 0) return false;
    left_ = 1 + rng.below(uint64_t{2} * period_ - 1);
    return true;
  }

 private:
  uint32_t period_;
  uint32_t left_;
};

}  // namespace sim
