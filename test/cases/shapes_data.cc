#include "test/cases/shapes_data.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "test/protocol/small_float.h"

namespace cases {
namespace {

constexpr unsigned char kPoison = 0x7b;

const sim::SmallFloat* small_float(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return &sim::kHalf;
    case DataType::kBfloat16:
      return &sim::kBfloat16;
    case DataType::kFloat8e4m3:
      return &sim::kFloat8e4m3;
    case DataType::kFloat8e5m2:
      return &sim::kFloat8e5m2;
    default:
      return nullptr;
  }
}

void require_poison(const Bytes& arena, size_t begin, size_t end) {
  for (size_t i = 0; i < arena.size(); ++i) {
    if (i == begin) i = end;
    if (i >= arena.size()) break;
    if (arena[i] == kPoison) continue;
    INFO("byte " << i << " changed; the result is [" << begin << ", " << end << ")");
    FAIL("a byte beside the result changed");
  }
}

}  // namespace

std::string name_of(DataType type, ReduceOp op, size_t count) {
  return std::string(shunt::name_of(type)) + " " + shunt::name_of(op) + " of " +
         std::to_string(count) + " elements";
}

uint64_t hash_of(uint64_t a, uint64_t b, uint64_t c) {
  sim::Rng rng(a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu ^ c * 0x165667b19e3779f9u);
  return rng.next();
}

uint64_t hash_of(const Bytes& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

Bytes whole_numbers(DataType type, ReduceOp op, size_t count, uint64_t seed) {
  constexpr int kFactors[] = {1, -1, 2, 1};
  const uint32_t size = size_of(type);
  Bytes bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t random = hash_of(seed, i);
    const int value =
        op == ReduceOp::kProd ? kFactors[random % 4] : static_cast<int>(random % 9) - 4;
    uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(value));
    if (type == DataType::kFloat32) bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    if (type == DataType::kFloat64) bits = std::bit_cast<uint64_t>(static_cast<double>(value));
    if (const sim::SmallFloat* small = small_float(type)) {
      bits = encode(*small, static_cast<float>(value));
    }
    std::memcpy(&bytes[i * size], &bits, size);
  }
  return bytes;
}

std::vector<Bytes> all_inputs(DataType type, size_t count, bool odd, int ranks, uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int r = 0; r < ranks; ++r) {
    sim::Rng rng(hash_of(seed, static_cast<uint64_t>(r), 77));
    inputs.push_back(sim::make_input(type, count, odd, rng));
  }
  return inputs;
}

double value_of(DataType type, const unsigned char* element) {
  uint64_t bits = 0;
  std::memcpy(&bits, element, size_of(type));
  if (type == DataType::kFloat64) return std::bit_cast<double>(bits);
  if (type == DataType::kFloat32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  const sim::SmallFloat* small = small_float(type);
  return small != nullptr ? decode(*small, static_cast<uint32_t>(bits)) : static_cast<double>(bits);
}

bool is_nan(DataType type, const unsigned char* element) {
  return is_float(type) && std::isnan(value_of(type, element));
}

Place place_of(int rank, uint32_t serial, DataType type) {
  const uint64_t random = hash_of(static_cast<uint64_t>(rank) + 1, serial, 5);
  const size_t size = size_of(type);
  Place place;
  place.send_offset = random % 19 * size;
  place.recv_offset = (random >> 8) % 19 * size;
  place.in_place = (random >> 16) % 3 == 0;
  place.at_end = (random >> 24) % 4 == 0;
  return place;
}

Arena::Arena(const Rank& rank, ncclComm_t comm, size_t most_bytes)
    : rank_(rank),
      comm_(comm),
      send_((most_bytes + 8191) / 4096 * 4096),
      recv_((most_bytes + 8191) / 4096 * 4096) {}

Bytes Arena::all_reduce(DataType type, ReduceOp op, size_t count, const Bytes& mine,
                        const Place& place, By by) {
  const size_t bytes = count * size_of(type);
  // The first 256 bytes are guard, and what is behind the buffer.
  size_t to = place.at_end ? recv_.bytes() - bytes : 256 + place.recv_offset;
  size_t from = place.at_end ? send_.bytes() - bytes : 256 + place.send_offset;
  REQUIRE(to + bytes <= recv_.bytes());
  const Memory& sent = place.in_place ? recv_ : send_;
  if (place.in_place) from = to;
  send_.fill(kPoison);
  recv_.fill(kPoison);
  sent.put(mine, from);
  INFO("rank " << rank_.rank << ", " << name_of(type, op, count) << ", sent from byte " << from
               << ", received at " << to << (place.in_place ? ", in place" : ""));
  const auto function = by == By::kNccl ? ncclAllReduce : pncclAllReduce;
  NCCL(function(sent.at(from), recv_.at(to), count, nccl_type(type), nccl_op(op), comm_, stream_));
  REQUIRE(stream_.end() == CUDA_SUCCESS);
  const Bytes received = recv_.get(recv_.bytes());
  require_poison(received, to, to + bytes);
  if (!place.in_place) REQUIRE(send_.get(bytes, from) == mine);
  const auto begin = received.begin() + static_cast<std::ptrdiff_t>(to);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(bytes));
}

void require_same(DataType type, ReduceOp op, const std::vector<Bytes>& inputs, const Bytes& got) {
  const size_t size = size_of(type), count = got.size() / size;
  const Bytes want = sim::reduce(type, op, count, inputs);
  REQUIRE(want.size() == got.size());
  for (size_t i = 0; i < count; ++i) {
    if (sim::same_element(type, op, &want[i * size], &got[i * size])) continue;
    INFO("element " << i << " is " << value_of(type, &got[i * size]) << ", must be "
                    << value_of(type, &want[i * size]));
    FAIL("a wrong result");
  }
}

}  // namespace cases
