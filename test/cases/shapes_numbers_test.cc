// Cases 34 to 36: the same bits on all ranks, in every run and whatever the batch; errors against
// fp64; integers; what is not ours is NCCL's; other numbers of ranks.
#include <cmath>
#include <cstring>
#include <limits>

#include "test/cases/job.h"
#include "test/cases/shapes_data.h"

using namespace cases;

namespace {

constexpr size_t kMostHashes = 4096;

// Result number `index` of a rank, for the parent to compare across ranks.
void publish(const Rank& rank, size_t index, const Bytes& result) {
  auto* hashes = reinterpret_cast<uint64_t*>(rank.shared.data);
  REQUIRE(index < kMostHashes);
  hashes[static_cast<size_t>(rank.rank) * kMostHashes + index] = hash_of(result);
  rank.shared.flags[0].store(static_cast<uint32_t>(index + 1));
}

void require_equal_ranks(const Job& job) {
  const auto* hashes = reinterpret_cast<const uint64_t*>(job.shared().data);
  const size_t results = job.shared().flags[0].load();
  REQUIRE(results > 0);
  for (int r = 1; r < job.ranks(); ++r) {
    for (size_t i = 0; i < results; ++i) {
      INFO("rank " << r << ", result " << i);
      REQUIRE(hashes[i] != 0);
      REQUIRE(hashes[static_cast<size_t>(r) * kMostHashes + i] == hashes[i]);
    }
  }
}

// What the error of a result is measured in: the root of the mean square, and the textbook bound.
struct Error {
  double rms = 0;
  double worst = 0;  // |error| / ((1+u)^(n-1) - 1) / sum of magnitudes; at most 1
};

Error error_of(DataType type, const std::vector<Bytes>& inputs, const Bytes& got) {
  const size_t size = size_of(type), count = got.size() / size;
  const double u = type == DataType::kFloat64 ? std::ldexp(1.0, -53) : std::ldexp(1.0, -24);
  const double factor = std::expm1(static_cast<double>(inputs.size() - 1) * std::log1p(u));
  Error error;
  for (size_t at = 0; at < got.size(); at += size) {
    long double exact = 0, magnitudes = 0;
    for (const Bytes& input : inputs) {
      const long double value = value_of(type, &input[at]);
      exact += value;
      magnitudes += std::fabs(value);
    }
    const auto off = static_cast<double>(std::fabs(exact - value_of(type, &got[at])));
    error.rms += off * off / static_cast<double>(count);
    error.worst = std::max(error.worst, off / (factor * static_cast<double>(magnitudes)));
  }
  error.rms = std::sqrt(error.rms);
  return error;
}

}  // namespace

TEST_CASE("job: numbers", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  constexpr size_t kCount = 2500;
  Arena arena(rank, comm, kCount * 8);
  size_t results = 0;
  uint32_t serial = 0;
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16, DataType::kFloat32,
                              DataType::kFloat64, DataType::kFloat8e4m3, DataType::kFloat8e5m2}) {
    const auto inputs = all_inputs(type, kCount, false, rank.ranks, 34 + serial);
    const Bytes& mine = inputs[static_cast<size_t>(rank.rank)];
    const auto run = [&](Arena::By by) {
      return arena.all_reduce(type, ReduceOp::kSum, kCount, mine,
                              place_of(rank.rank, ++serial, type), by);
    };
    const Bytes got = run(Arena::By::kNccl);
    REQUIRE(run(Arena::By::kNccl) == got);
    require_same(type, ReduceOp::kSum, inputs, got);
    publish(rank, results++, got);
    const Error ours = error_of(type, inputs, got);
    const Error nccls = error_of(type, inputs, run(Arena::By::kPncclPastTheLibrary));
    INFO(shunt::name_of(type) << ": error " << ours.rms << ", NCCL's " << nccls.rms);
    if (size_of(type) <= 2) {
      REQUIRE(nccls.rms > 0);
      REQUIRE(ours.rms <= nccls.rms * (1 + 1e-12));
    } else {
      REQUIRE(ours.worst <= 1);
    }
  }
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_34_same_bits_and_small_errors") {
  std::vector<uint64_t> first;
  for (const int ranks : numbers_of_ranks({2, 3, 4, 5, 6, 7, 8})) {
    JobOptions all;
    all.ranks = ranks;
    all.environment["SHUNT_CAP"] = "20000";
    Job job("numbers", all);
    INFO(ranks << " ranks");
    REQUIRE(job.trouble(60) == "");
    require_equal_ranks(job);
    CHECK(total(job.output(), "shunted") == static_cast<unsigned>(ranks) * 12);
  }
}

// One row of 5120 alone, and inside a batch of 64 rows; another number of lanes, too.
TEST_CASE("job: rows", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  constexpr size_t kRow = 5120, kRows = 64;
  size_t results = 0;
  Arena arena(rank, comm, kRow * kRows * 4);
  for (const DataType type : {DataType::kBfloat16, DataType::kFloat16}) {
    const size_t row_bytes = kRow * size_of(type);
    sim::Rng rng(hash_of(static_cast<uint64_t>(rank.rank), static_cast<uint64_t>(type)));
    const Bytes batch = sim::make_input(type, kRow * kRows, false, rng);
    const Bytes all = arena.all_reduce(type, ReduceOp::kSum, kRow * kRows, batch, {});
    publish(rank, results++, all);
    for (const size_t row : {size_t{0}, size_t{1}, size_t{37}, kRows - 1}) {
      const auto begin = static_cast<std::ptrdiff_t>(row * row_bytes);
      const auto end = begin + static_cast<std::ptrdiff_t>(row_bytes);
      const Bytes mine(batch.begin() + begin, batch.begin() + end);
      const Bytes got = arena.all_reduce(type, ReduceOp::kSum, kRow, mine,
                                         place_of(rank.rank, static_cast<uint32_t>(row), type));
      REQUIRE(got == Bytes(all.begin() + begin, all.begin() + end));
      publish(rank, results++, got);
    }
  }
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_34_row_does_not_depend_on_its_batch") {
  for (const int ranks : numbers_of_ranks({2, 3})) {
    JobOptions all;
    all.ranks = ranks;
    all.environment["SHUNT_CAP"] = "1M";
    Job job("rows", all);
    REQUIRE(job.trouble(60) == "");
    require_equal_ranks(job);
    CHECK(total(job.output(), "shunted") == static_cast<unsigned>(ranks) * 10);
  }
}

namespace {

template <typename T>
Bytes pack(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
void require_result(Arena& arena, const Rank& rank, DataType type, ReduceOp op,
                    const std::vector<T>& of_rank_0, const std::vector<T>& of_rank_1,
                    const std::vector<T>& want) {
  const Bytes mine = pack(rank.rank == 0 ? of_rank_0 : of_rank_1);
  INFO(name_of(type, op, want.size()));
  REQUIRE(arena.all_reduce(type, op, want.size(), mine, {}) == pack(want));
  REQUIRE(arena.all_reduce(type, op, want.size(), mine, {}, Arena::By::kPncclPastTheLibrary) ==
          pack(want));
}

}  // namespace

// Written out by hand, and the same from NCCL.
TEST_CASE("job: integers", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  Arena arena(rank, comm, 4096);
  const auto sum = ReduceOp::kSum, avg = ReduceOp::kAvg;
  require_result<int8_t>(arena, rank, DataType::kInt8, sum, {127, -128, 100, -1}, {1, -1, 100, 1},
                         {-128, 127, -56, 0});
  require_result<uint8_t>(arena, rank, DataType::kUint8, sum, {255, 200, 0}, {1, 100, 0},
                          {0, 44, 0});
  require_result<int8_t>(arena, rank, DataType::kInt8, ReduceOp::kProd, {100, -128, 7},
                         {100, -1, 7}, {16, -128, 49});
  require_result<int32_t>(arena, rank, DataType::kInt32, avg, {-3, 3, 7, -7, 0}, {0, 0, -2, 2, -1},
                          {-1, 1, 2, -2, 0});
  require_result<int8_t>(arena, rank, DataType::kInt8, avg, {-1, 5, -5}, {0, 0, 0}, {0, 2, -2});
  require_result<uint32_t>(arena, rank, DataType::kUint32, avg, {7, 0xffffffff}, {0, 0},
                           {3, 0x7fffffff});
  const uint64_t high = uint64_t{1} << 63;
  require_result<uint64_t>(arena, rank, DataType::kUint64, ReduceOp::kMax,
                           {high + 5, 1, ~uint64_t{0}}, {5, high, high},
                           {high + 5, high, ~uint64_t{0}});
  require_result<uint64_t>(arena, rank, DataType::kUint64, ReduceOp::kMin, {high + 5, 1}, {5, high},
                           {5, 1});
  require_result<int64_t>(arena, rank, DataType::kInt64, ReduceOp::kMax, {-1, INT64_MIN}, {-2, -5},
                          {-1, -5});
  require_result<int64_t>(arena, rank, DataType::kInt64, sum, {INT64_MAX, -1}, {1, 1},
                          {INT64_MIN, 0});
  NCCL(ncclCommDestroy(comm));
}

// Everything here must reach NCCL, and NCCL's own answer must come back.
TEST_CASE("job: not ours", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  Memory send(64), recv(64);
  const auto call = [&](int type, int op, size_t count = 4) {
    return ncclAllReduce(send.at(), recv.at(), count, static_cast<ncclDataType_t>(type),
                         static_cast<ncclRedOp_t>(op), comm, stream);
  };
  ncclRedOp_t scaled = ncclSum;
  float factor = 0.5f;
  NCCL(ncclRedOpCreatePreMulSum(&scaled, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
  send.put(as_bytes({2, 4, 6, 8}));
  NCCL(call(ncclFloat32, scaled));
  stream.wait();
  REQUIRE(recv.get(16) == as_bytes({2, 4, 6, 8}));  // 0.5 x of each of two ranks
  NCCL(ncclRedOpDestroy(scaled, comm));
  REQUIRE(call(ncclFloat32, scaled) == ncclInvalidArgument);  // no longer known
  for (const int type : {12, 13, 99, -1}) REQUIRE(call(type, ncclSum) == ncclInvalidArgument);
  for (const int op : {5, 6, 77, -1}) REQUIRE(call(ncclFloat32, op) == ncclInvalidArgument);
  REQUIRE(ncclAllReduce(nullptr, recv.at(), 0, ncclFloat32, ncclSum, comm, stream) == ncclSuccess);
  REQUIRE(ncclAllReduce(send.at(), recv.at(), 4, ncclFloat32, ncclSum, nullptr, stream) ==
          ncclInvalidArgument);
  rank.shared.flags[0].store(2 + 4 + 4 + 1 + 1);
  NCCL(ncclCommDestroy(comm));
}

// fp8 that this GPU or this NCCL cannot reduce is NCCL's to refuse.
TEST_CASE("job: no fp8", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  const Stream stream;
  Memory send(64), recv(64);
  for (const int type : {10, 11}) {
    const auto fp8 = static_cast<ncclDataType_t>(type);
    REQUIRE(ncclAllReduce(send.at(), recv.at(), 8, fp8, ncclSum, comm, stream) ==
            ncclInvalidArgument);
  }
  NCCL(ncclAllReduce(send.at(), recv.at(), 8, ncclFloat16, ncclSum, comm, stream));
  stream.wait();
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_35_integers_and_what_is_not_ours") {
  Job integers("integers", {});
  REQUIRE(integers.trouble(60) == "");
  CHECK(total(integers.output(), "shunted") == 2 * 10);
  CHECK(total(integers.output(), "forwarded") == 0);

  Job others("not ours", {});
  REQUIRE(others.trouble(60) == "");
  CHECK(total(others.output(), "shunted") == 0);
  CHECK(total(others.output(), "forwarded") == 2 * others.shared().flags[0].load());

  if (on_gpus()) return;  // one NCCL, one kind of GPU
  JobOptions old_nccl, old_gpu;
  old_nccl.environment["LD_LIBRARY_PATH"] = CASES_OLDEST_NCCL ":" CASES_EMULATOR;
  old_gpu.environment["EMU_COMPUTE_CAPABILITY_MAJOR"] = "8";
  for (const JobOptions& all : {old_nccl, old_gpu}) {
    Job job("no fp8", all);
    REQUIRE(job.trouble(60) == "");
    CHECK(total(job.output(), "shunted") == 2 * 1);
    CHECK(total(job.output(), "forwarded") == 2 * 2);
  }
}

// Mixed sizes, types and operations, eager and from graphs, for numbers of ranks that are no power
// of two.
TEST_CASE("job: ranks", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  constexpr size_t kMost = 4096;
  Arena arena(rank, comm, kMost);
  const int rounds = rank.ranks > 8 ? 6 : 25;
  size_t results = 0;
  for (int round = 0; round < rounds; ++round) {
    const uint64_t random = hash_of(36, static_cast<uint64_t>(round));
    const auto type = static_cast<DataType>(random % shunt::kDataTypes);
    const auto op = static_cast<ReduceOp>((random >> 8) % shunt::kReduceOps);
    const size_t count = 1 + (random >> 16) % (kMost / size_of(type));
    const auto inputs = all_inputs(type, count, round % 3 == 0, rank.ranks, random);
    const Bytes got = arena.all_reduce(type, op, count, inputs[static_cast<size_t>(rank.rank)],
                                       place_of(rank.rank, static_cast<uint32_t>(round), type));
    require_same(type, op, inputs, got);
    publish(rank, results++, got);
  }
  Memory send(kMost), recv(kMost);
  const Graph graph(arena.stream(), [&] {
    NCCL(
        ncclAllReduce(send.at(), recv.at(), kMost / 4, ncclFloat32, ncclSum, comm, arena.stream()));
  });
  for (uint32_t replay = 0; replay < 4; ++replay) {
    send.put(as_bytes(exact_inputs(rank.rank, kMost / 4, replay)));
    recv.fill(0x7b);
    graph.launch(arena.stream());
    arena.stream().wait();
    REQUIRE(recv.get(kMost) == as_bytes(exact_sums(rank.ranks, kMost / 4, replay)));
  }
  rank.barrier();
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_36_numbers_of_ranks") {
  for (const int ranks : numbers_of_ranks({2, 3, 4, 5, 6, 7, 8, 16})) {
    JobOptions all;
    all.ranks = ranks;
    all.environment["EMU_GPUS"] = "16";
    all.environment["SHUNT_CAP"] = "4096";
    Job job("ranks", all);
    INFO(ranks << " ranks");
    REQUIRE(job.trouble(60) == "");
    require_equal_ranks(job);
    const unsigned calls = ranks > 8 ? 7 : 26;  // a captured call counts once
    CHECK(total(job.output(), "shunted") == static_cast<unsigned>(ranks) * calls);
    CHECK(total(job.output(), "forwarded") == 0);
  }
}
