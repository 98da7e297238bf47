// kernels/launch_plan.h: every answer is legal, whatever is asked.
#include <cstring>

#include "kernels/launch_plan.h"
#include "test/catch.h"

using namespace shunt;

namespace {

// One CHECK for each would be millions: Catch is asked about the first wrong answer only.
const char* illegal(size_t bytes, DataType type, const DeviceLimits& limits,
                    const Geometry& geometry) {
  const LaunchPlan plan = plan_launch(bytes, type, limits);
  const uint32_t packets = packets_for(plan.protocol, bytes);
  const uint32_t capacity =
      plan.protocol == Protocol::kSentinel ? geometry.sentinel_packets : geometry.flagged_packets;
  const uint64_t elements = bytes / size_of(type), each = elements_per_packet(plan.protocol, type);
  if (plan.protocol != protocol_of(type)) return "not the datatype's protocol";
  if (plan.lanes == 0 || plan.lanes > geometry.lanes) return "more lanes than there are";
  if (plan.threads == 0 || plan.threads % 32 != 0) return "not whole warps";
  if (plan.threads > limits.max_threads) return "more threads than the devices allow";
  if (plan.packets_per_lane == 0 || plan.packets_per_lane > capacity)
    return "past the lane's region";
  if (uint64_t{plan.lanes} * plan.packets_per_lane < packets) return "packets left out";
  if ((elements + each - 1) / each != packets) return "packets do not match elements";
  const LaunchPlan again = plan_launch(bytes, type, limits);
  if (again.lanes != plan.lanes || again.threads != plan.threads ||
      again.packets_per_lane != plan.packets_per_lane) {
    return "not pure";
  }
  return "";
}

constexpr DataType kByWidth[] = {DataType::kInt8,    DataType::kFloat8e4m3, DataType::kFloat16,
                                 DataType::kFloat32, DataType::kInt32,      DataType::kFloat64,
                                 DataType::kUint64};

}  // namespace

TEST_CASE("plans are legal at every size up to the cap") {
  for (uint32_t threads : {32u, 64u, 256u, kMaxDataThreads}) {
    for (uint32_t lanes : {1u, 2u, 3u, 7u, 64u}) {
      for (size_t cap : {1u, 8u, 520u, 4096u, 65536u, 65544u}) {
        const DeviceLimits limits{threads, lanes};
        const Geometry geometry = plan_geometry(4, cap, limits);
        for (DataType type : kByWidth) {
          for (size_t bytes = size_of(type); bytes <= cap; bytes += size_of(type)) {
            if (const char* why = illegal(bytes, type, limits, geometry); *why != 0) {
              CAPTURE(threads, lanes, cap, bytes, name_of(type));
              FAIL(why);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("plans are legal near the largest caps") {
  for (size_t cap : {size_t{1} << 20, (size_t{4} << 20) + 8}) {
    const DeviceLimits limits;
    const Geometry geometry = plan_geometry(8, cap, limits);
    for (DataType type : kByWidth) {
      for (size_t bytes = cap - cap % size_of(type), i = 0; i < 5000; ++i, bytes -= size_of(type)) {
        if (const char* why = illegal(bytes, type, limits, geometry); *why != 0) {
          CAPTURE(cap, bytes, name_of(type));
          FAIL(why);
        }
      }
    }
  }
}

TEST_CASE("all datatypes of one width and protocol have the same plan") {
  const DeviceLimits limits{32, 3};
  for (uint32_t t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    const LaunchPlan plan = plan_launch(1024, type, limits);
    const LaunchPlan other =
        plan_launch(1024, is_float(type) ? DataType::kFloat32 : DataType::kInt32, limits);
    CHECK(plan.lanes == other.lanes);
    CHECK(plan.threads == other.threads);
    CHECK(plan.packets_per_lane == other.packets_per_lane);
  }
}

TEST_CASE("peers polled at once") {
  for (uint32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const uint32_t batch = peer_batch_for(ranks);
    CHECK(std::count(std::begin(kPeerBatches), std::end(kPeerBatches), batch) == 1);
    if (ranks <= 8) CHECK(batch >= ranks - 1);
  }
}
