// An all-reduce with its own buffers that is run again and again with other data and checked bit by
// bit.
#pragma once

#include "test/cases/client.h"

namespace cases {

// A small generator whose runs can be repeated; ranks with one seed draw alike.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t next();
  size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }

 private:
  uint64_t state_;
};

inline void pause_us(size_t us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); }

class Pinned {
 public:
  explicit Pinned(size_t bytes) { CU(cuMemHostAlloc(&memory_, bytes, 0)); }
  ~Pinned() { cuMemFreeHost(memory_); }
  Pinned(const Pinned&) = delete;
  uint32_t* words() const { return static_cast<uint32_t*>(memory_); }

 private:
  void* memory_ = nullptr;
};

// Word i that `rank` sends: below 2^20, so that a sum of 16 is exact in fp32 as in uint32, in any
// order.
uint32_t word_of(uint64_t seed, int rank, size_t i);

// Sums uint32 or fp32. Inputs and poison are put into the stream in front of the call, the result
// is fetched behind it, so nothing here waits, and a call that did nothing is seen. All addresses
// stay, for graphs.
class Exchange {
 public:
  explicit Exchange(size_t bytes, ncclDataType_t type = ncclFloat32, bool in_place = false);
  size_t bytes() const { return bytes_; }

  void fill(uint64_t seed, int rank, CUstream stream);  // not before the last round was checked
  void call(ncclComm_t comm, CUstream stream,
            decltype(&ncclAllReduce) function = &ncclAllReduce) const;
  void fetch(CUstream stream) const;
  // After the stream has ended. Throws "wrong result: ..." unless every word, and the guard words
  // behind the result, are as they must be.
  void check(int ranks) const;
  // All of it.
  void run(uint64_t seed, int rank, int ranks, ncclComm_t comm, const Stream& stream);
  // The same by a graph that has captured this call; before it: what else to do once it is filled.
  void replay(const Graph& graph, uint64_t seed, int rank, int ranks, const Stream& stream,
              const std::function<void()>& before = {});

 private:
  uint32_t converted(uint32_t sum) const;
  CUdeviceptr result() const { return in_place_ ? send_.address() : recv_.address(); }

  size_t bytes_;
  ncclDataType_t type_;
  bool in_place_;
  uint64_t seed_ = 0;
  Memory send_, recv_;
  Pinned input_, output_;
};

// One round of each size, all checked; the sizes in bytes.
void run_sizes(const Rank& rank, ncclComm_t comm, const Stream& stream, uint64_t seed,
               const std::vector<size_t>& sizes);

}  // namespace cases
