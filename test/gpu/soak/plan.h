// What the soak does, as a seed draws it. What all ranks must do alike comes from one generator,
// what may differ between them (streams, alignment, in place or not) from another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/datatype.h"
#include "test/protocol/random.h"
#include "tools/bench/fields.h"

namespace shunt::soak {

inline constexpr uint32_t kCommunicators = 2;
inline constexpr uint32_t kStreams = 3;  // the first one begins and ends everything

struct Settings {
  uint32_t ranks = 2;
  uint64_t calls = 0;    // of one rank, after which it ends; 0: no such end
  uint64_t seconds = 0;  // likewise
  uint64_t cap = 131072;
  uint32_t graph_calls = 500;             // all-reduces of a graph
  uint32_t eager_calls = 200;             // at most so many eager ones at a stretch
  uint64_t communicator_calls = 500'000;  // then all communicators and graphs are made anew
  uint64_t seed = 1;

  // Elements that a call may read lie in so many bytes.
  uint64_t region_bytes() const { return 2 * cap + 4096; }
};
bench::Fields to_fields(const Settings& settings);
Settings settings_from(const bench::Fields& fields);

// One all-reduce of one rank.
struct Draw {
  // The same on all ranks.
  uint32_t communicator = 0;
  DataType type{};
  ReduceOp op{};
  uint64_t count = 0;
  uint64_t from = 0;   // offset in bytes of its input in the type's region; whole elements
  uint32_t group = 0;  // 0: in none; neighbours with the same number are in one group
  bool up_to_cap = false;  // so is the sum of the group's calls of its communicator
  // The rank's own.
  uint32_t stream = 0;
  bool in_place = false;
  uint32_t shift = 0;  // of the output from the next multiple of 16; whole elements

  uint64_t bytes() const { return count * size_of(type); }
};

// Types that may be drawn: all that this NCCL knows.
std::vector<DataType> types_of(int nccl_version);

// `calls` of them, fewer if their outputs would take more than `most_bytes`. `captured`: streams
// are drawn alike, so that the branches of a graph are the same on all ranks.
std::vector<Draw> draw_calls(const Settings& settings, const std::vector<DataType>& types,
                             uint32_t calls, uint64_t most_bytes, bool captured, sim::Rng& all,
                             sim::Rng& own);

}  // namespace shunt::soak
