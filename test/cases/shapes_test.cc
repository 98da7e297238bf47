// Cases 31 to 33: counts, datatypes, operations, places of buffers, odd values. One hidden job
// each; the cases start it and look at what the library says it did.
#include "test/cases/job.h"
#include "test/cases/shapes_data.h"

using namespace cases;

namespace {

constexpr size_t kCap = 4096;  // bytes: SHUNT_CAP of these jobs
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin,
                             ReduceOp::kAvg};
constexpr int kRepeats = 2;

std::vector<size_t> counts_of(DataType type) {
  const size_t cap = kCap / size_of(type);
  return {0, 1, 2, 3, 7, 257, cap - 1, cap, cap + 1};
}
constexpr int kShuntedCounts = 7, kForwardedCounts = 2;

JobOptions options(int ranks, unsigned seconds = 60) {
  JobOptions all;
  all.ranks = ranks;
  all.environment["SHUNT_CAP"] = std::to_string(kCap);
  all.limit_seconds = seconds;
  return all;
}

void run_shapes(int ranks) {
  Job job("shapes", options(ranks, 100));
  REQUIRE(job.trouble(110) == "");
  const std::string output = job.output();
  INFO(output);
  const auto n = static_cast<unsigned long long>(ranks);
  const unsigned long long each = n * shunt::kDataTypes * std::size(kOps) * kRepeats;
  CHECK(total(output, "shunted") == each * kShuntedCounts);
  CHECK(total(output, "forwarded") == each * kForwardedCounts);
}

}  // namespace

// Every rank has its own alignment, is in place or not, and ends at its allocation's end or not.
TEST_CASE("job: shapes", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  Arena arena(rank, comm, kCap + 1024);
  uint32_t serial = 0;
  for (uint32_t t = 0; t < shunt::kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    for (const ReduceOp op : kOps) {
      for (const size_t count : counts_of(type)) {
        for (int repeat = 0; repeat < kRepeats; ++repeat, ++serial) {
          const bool shunted = count > 0 && count * size_of(type) <= kCap;
          std::vector<Bytes> inputs = all_inputs(type, count, repeat == 1, rank.ranks, serial);
          // NCCL adds in another order: with whole numbers that does not show.
          for (size_t r = 0; !shunted && r < inputs.size(); ++r) {
            inputs[r] = whole_numbers(type, op, count, hash_of(serial, r));
          }
          const Bytes got =
              arena.all_reduce(type, op, count, inputs[static_cast<size_t>(rank.rank)],
                               place_of(rank.rank, serial, type));
          const bool inexact =
              !shunted && op == ReduceOp::kAvg && is_float(type) && rank.ranks != 2;
          INFO(name_of(type, op, count) << ", serial " << serial);
          if (!inexact) require_same(type, op, inputs, got);
        }
      }
    }
  }
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_31_shapes_of_two_ranks") { run_shapes(2); }
TEST_CASE("case_31_shapes_of_three_ranks") { run_shapes(3); }

// The example of case 31 and all its relatives: each pair of alignments, of every width of element.
TEST_CASE("job: alignments", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  Arena arena(rank, comm, 1024);
  uint32_t serial = 0;
  for (const DataType type : {DataType::kInt8, DataType::kFloat16, DataType::kFloat32,
                              DataType::kFloat64, DataType::kFloat8e5m2, DataType::kInt32}) {
    const size_t size = size_of(type), places = 16 / size;
    for (size_t mine = 0; mine < places; ++mine) {
      for (size_t theirs = 0; theirs < places; theirs += size == 1 ? 3 : 1, ++serial) {
        const size_t here = rank.rank == 0 ? mine : theirs;
        const size_t count = 1 + serial % 41;
        const auto inputs = all_inputs(type, count, false, rank.ranks, serial);
        const Place place{here * size, (here * 5 + serial) % places * size, false, false};
        const Bytes got = arena.all_reduce(type, ReduceOp::kSum, count,
                                           inputs[static_cast<size_t>(rank.rank)], place);
        require_same(type, ReduceOp::kSum, inputs, got);
      }
    }
  }
  rank.shared.flags[0].store(serial);
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_31_alignment_differs_between_ranks") {
  Job job("alignments", options(2));
  REQUIRE(job.trouble(60) == "");
  CHECK(total(job.output(), "shunted") == 2 * job.shared().flags[0].load());
  CHECK(total(job.output(), "forwarded") == 0);
}

// The cap is in bytes; the decision of each single call is seen in what reached NCCL.
TEST_CASE("job: cap", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  Arena arena(rank, comm, 8192);
  const size_t cap = rank.shared.flags[0].load();
  for (const DataType type :
       {DataType::kUint8, DataType::kFloat16, DataType::kInt32, DataType::kFloat64}) {
    const size_t most = cap / size_of(type);
    for (const size_t count : {most - 1, most, most + 1, most + 2}) {
      std::vector<Bytes> inputs;
      for (int r = 0; r < rank.ranks; ++r) {
        inputs.push_back(whole_numbers(type, ReduceOp::kSum, count, static_cast<uint64_t>(r)));
      }
      const Bytes got =
          arena.all_reduce(type, ReduceOp::kSum, count, inputs[static_cast<size_t>(rank.rank)],
                           place_of(rank.rank, static_cast<uint32_t>(count), type));
      require_same(type, ReduceOp::kSum, inputs, got);
    }
  }
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_32_cap_is_in_bytes") {
  for (const size_t cap : {size_t{2048}, size_t{2050}, size_t{2055}}) {
    const TemporaryFile trace("shunt-cap");
    JobOptions all = options(2);
    all.environment["SHUNT_CAP"] = std::to_string(cap);
    all.environment["EMU_NCCL_TRACE"] = trace.path();
    Job job("cap", all);
    job.shared().flags[0].store(static_cast<uint32_t>(cap));
    REQUIRE(job.trouble(60) == "");
    const std::string calls = read_file(trace.path());
    INFO("cap " << cap << "\n" << calls);
    size_t forwarded = 0;
    for (const size_t size : {1, 2, 4, 8}) {
      for (size_t count = cap / size - 1; count <= cap / size + 2; ++count) {
        if (count * size <= cap) continue;
        ++forwarded;
      }
    }
    CHECK(forwarded == 8);
    CHECK(total(job.output(), "shunted") == 2 * 8);
    CHECK(total(job.output(), "forwarded") == 2 * forwarded);
    // What reached NCCL as a sum (the rounds of preparing are maxima) is all above the cap.
    for (size_t bytes = 0; bytes <= cap; ++bytes) {
      REQUIRE(calls.find(" bytes=" + std::to_string(bytes) + " type=uint8 op=sum") ==
              std::string::npos);
    }
    CHECK(count_of(calls, " op=sum") == 2 * forwarded);
    CHECK(lines_of(job.output(), "info", {"cap " + std::to_string(cap) + " bytes"}).size() == 1);
  }
}

namespace {

// Element patterns of case 33, by the bits of each type.
uint64_t special_bits(DataType type, uint32_t which) {
  const uint32_t bits = 8 * size_of(type);
  const uint64_t all = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const uint64_t sign = uint64_t{1} << (bits - 1);
  const uint64_t infinity = type == DataType::kFloat16      ? 0x7c00
                            : type == DataType::kBfloat16   ? 0x7f80
                            : type == DataType::kFloat32    ? 0x7f800000
                            : type == DataType::kFloat64    ? 0x7ff0000000000000
                            : type == DataType::kFloat8e5m2 ? 0x7c
                                                            : 0x7e;  // e4m3 has none: its largest
  switch (which) {
    case 0:
      return all;  // the NaN that means "not here yet"
    case 1:
      return all & ~sign;  // what a writer sends in its place
    case 2:
      return infinity;
    case 3:
      return infinity | sign;
    case 4:
      return sign;  // -0
    case 5:
      return 1;  // the smallest denormal
    default:
      return sign | 3;
  }
}

// Ordinary numbers with runs of `length` special elements, one every 32 elements, moved by `shift`.
Bytes with_specials(DataType type, size_t count, uint32_t which, size_t length, size_t shift,
                    uint64_t seed) {
  Bytes bytes = whole_numbers(type, ReduceOp::kSum, count, seed);
  const uint64_t bits = special_bits(type, which);
  for (size_t i = 0; i < count; ++i) {
    if ((i + 32 - shift % 32) % 32 < length) {
      std::memcpy(&bytes[i * size_of(type)], &bits, size_of(type));
    }
  }
  return bytes;
}

constexpr DataType kFloats[] = {DataType::kFloat16, DataType::kBfloat16,   DataType::kFloat32,
                                DataType::kFloat64, DataType::kFloat8e4m3, DataType::kFloat8e5m2};

}  // namespace

TEST_CASE("job: odd values", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  constexpr size_t kCount = 131;
  Arena arena(rank, comm, kCount * 8);
  uint32_t serial = 0;
  const auto check = [&](DataType type, ReduceOp op, const std::vector<Bytes>& inputs) {
    const Bytes& mine = inputs[static_cast<size_t>(rank.rank)];
    const Place place = place_of(rank.rank, ++serial, type);
    const Bytes got = arena.all_reduce(type, op, kCount, mine, place);
    require_same(type, op, inputs, got);
    // Products are left out: one that becomes zero on its way, in NCCL's order, times infinity, is
    // a NaN.
    if (op == ReduceOp::kProd) return;
    const Bytes nccls =
        arena.all_reduce(type, op, kCount, mine, place, Arena::By::kPncclPastTheLibrary);
    for (size_t at = 0; at < got.size(); at += size_of(type)) {
      if (is_nan(type, &nccls[at])) REQUIRE(is_nan(type, &got[at]));
    }
  };
  for (const DataType type : kFloats) {
    const size_t word = 16 / size_of(type);  // elements of a packet
    // All ones at every position of a packet, in runs up to a whole packet; of one rank, or of all.
    for (size_t shift = 0; shift < word; ++shift) {
      const size_t length = 1 + (shift * 5 + serial) % word;
      for (const int who : {0, rank.ranks - 1, -1}) {
        std::vector<Bytes> inputs;
        for (int r = 0; r < rank.ranks; ++r) {
          const bool has = who < 0 || who == r;
          inputs.push_back(with_specials(type, kCount, 0, has ? (who < 0 ? word : length) : 0,
                                         shift, hash_of(serial, static_cast<uint64_t>(r))));
        }
        check(type, ReduceOp::kSum, inputs);
      }
    }
    // Every pair of special values against every operation.
    for (const ReduceOp op : kOps) {
      for (uint32_t a = 0; a < 7; ++a) {
        std::vector<Bytes> inputs;
        for (int r = 0; r < rank.ranks; ++r) {
          const uint32_t which = (a + static_cast<uint32_t>(r) * (1 + serial % 5)) % 7;
          inputs.push_back(with_specials(type, kCount, which, 1 + a * 3, a,
                                         hash_of(serial, static_cast<uint64_t>(r))));
        }
        check(type, op, inputs);
      }
    }
  }
  rank.shared.flags[0].store(serial);
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_33_odd_values") {
  for (const int ranks : numbers_of_ranks({2, 3})) {
    Job job("odd values", options(ranks));
    REQUIRE(job.trouble(60) == "");
    const unsigned calls = job.shared().flags[0].load();
    CHECK(calls > 200);
    CHECK(total(job.output(), "shunted") == static_cast<unsigned>(ranks) * calls);
    CHECK(total(job.output(), "forwarded") == 0);  // NCCL's own answers went past the library
  }
}
