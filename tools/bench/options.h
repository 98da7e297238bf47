// What one benchmark does. The launcher fills it from the command line and sends it to every
// worker, so that all of them derive the same list of cases (cases.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/datatype.h"
#include "tools/bench/fields.h"
#include "tools/bench/sizes.h"

namespace shunt::bench {

// Who drives the GPUs: a process each, a thread each, or one thread with grouped calls.
enum class Launch : uint32_t { kProcesses = 0, kThreads = 1, kOneThread = 2 };
enum class Mode : uint32_t { kEager = 0, kGraph = 1 };
enum class Place : uint32_t { kOutOfPlace = 0, kInPlace = 1 };
// kRandom: sums that need rounding. kExact: small integers, whose sums every order of adding gets
// exactly.
enum class Data : uint32_t { kRandom = 0, kExact = 1 };

const char* name_of(Launch launch);
const char* name_of(Mode mode);
const char* name_of(Place place);
const char* name_of(Data data);

inline constexpr uint32_t kMaxRanks = 64;

struct Options {
  uint32_t ranks = 2;
  std::vector<uint32_t> devices;  // ordinal of each rank; empty: the rank
  Launch launch = Launch::kProcesses;

  std::vector<Size> sizes;
  std::vector<DataType> types = {DataType::kBfloat16};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::vector<Place> places = {Place::kOutOfPlace, Place::kInPlace};
  std::vector<Mode> modes = {Mode::kEager, Mode::kGraph};

  bool check = true;
  uint32_t iterations = 3;  // checked calls a case, path
  Data data = Data::kRandom;
  uint64_t seed = 1;
  bool misalign = false;

  bool time = true;
  uint32_t graph_calls = 50;
  uint32_t warmups = 2;
  uint32_t replays = 7;
  uint32_t eager_calls = 200;
  bool alternate = false;   // measure NCCL, shunt, NCCL, shunt instead of once each
  uint64_t cold_bytes = 0;  // working set to rotate through and to flush before each replay

  std::optional<uint64_t> expect_shunted_up_to;  // bytes

  uint32_t device_of(uint32_t rank) const { return devices.empty() ? rank : devices[rank]; }
};

// "half" and "fp16", "bfloat16" and "bf16", ...; "all" is every type or operation. Throw
// std::invalid_argument with the offending word.
std::vector<DataType> parse_types(const std::string& comma_separated);
std::vector<ReduceOp> parse_ops(const std::string& comma_separated);
std::vector<Place> parse_places(const std::string& comma_separated);  // "out", "in"
std::vector<Mode> parse_modes(const std::string& comma_separated);    // "eager", "graph"

// Throws std::invalid_argument when the options contradict each other.
void validate(const Options& options);

Fields to_fields(const Options& options);
Options options_from(const Fields& fields);

}  // namespace shunt::bench
