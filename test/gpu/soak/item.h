// A list of all-reduces with the memory that their outputs go to, each to its own place between
// guards. A check compares all of that memory, so a call that did nothing, or stored beside its
// output, is seen.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "test/gpu/soak/data.h"
#include "test/gpu/soak/plan.h"
#include "tools/worker/driver.h"

namespace shunt::soak {

// Where the inputs lie on the GPU: a region a type, at an alignment of the rank's own choice.
// Loading takes any part of the lines: no call sees the same inputs twice in a row.
class Inputs {
 public:
  Inputs(const Settings& settings, const Data& data, const std::vector<DataType>& types);

  void draw_alignment(sim::Rng& own);  // not while a graph exists that reads here
  void load(CUstream stream, uint64_t window);
  uint64_t windows() const {
    return (line_bytes_ - region_bytes_) / 16;
  }  // window: a multiple of 16 below 16 x this
  CUdeviceptr at(const Draw& draw) const;

 private:
  CUdeviceptr region(DataType type) const;

  const std::vector<DataType> types_;
  const uint64_t region_bytes_, line_bytes_;
  bench::DeviceMemory lines_, regions_;
  uint32_t shifts_[kDataTypes] = {};
};

// Memory of one item after the other, on the GPU and pinned on the host. Allocating beside running
// kernels would wait for them.
struct Arena {
  void reserve(uint64_t wanted);  // not while something uses it

  uint64_t bytes = 0;
  bench::DeviceMemory device;
  bench::Owned<void*, &cuMemFreeHost> host;
};

class Item {
 public:
  Item(std::string name, std::vector<Draw> draws, const Inputs& inputs, Arena& arena);

  const std::string& name() const { return name_; }
  const std::vector<Draw>& draws() const { return draws_; }
  void* output(size_t call) const {
    return reinterpret_cast<void*>(arena_.device.get() + places_[call]);
  }
  const void* input(size_t call) const;

  void poison(CUstream stream, unsigned char value);
  void copy_inputs(CUstream stream) const;  // of the calls in place
  void fetch(CUstream stream) const;
  // After the fetch: how many calls went wrong; tells each.
  uint64_t check(const Data& data, uint64_t window,
                 const std::function<void(const std::string&)>& tell) const;

 private:
  static constexpr uint64_t kGuard = 48;
  std::string describe(size_t call) const;

  const std::string name_;
  const std::vector<Draw> draws_;
  const Inputs& inputs_;
  std::vector<uint64_t> places_;  // of the outputs in the memory, ascending
  uint64_t bytes_ = 0;
  Arena& arena_;
  unsigned char poison_ = 0;
};

}  // namespace shunt::soak
