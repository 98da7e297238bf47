// Cases 39 to 42: who is where, which GPU is which, settings that differ, and ranks that are not in
// step.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "test/cases/client.h"
#include "test/cases/job.h"
#include "test/catch.h"

using namespace cases;

namespace {

// A few sizes, also above the cap; then every communicator that can be split off.
void run_some(const Rank& rank, ncclComm_t comm) {
  const Stream stream;
  for (const size_t count : {1, 1000, 20000}) {
    ENSURE(all_reduce_once(rank, comm, stream, count, static_cast<uint32_t>(count)) == 0);
  }
}

Environment file_of_boot_id(const TemporaryFile& file, const std::string& id) {
  std::ofstream(file.path()) << id << "\n";
  return {{"HOSTS_BOOT_ID", file.path()},
          {"LD_PRELOAD", std::string(CASES_PRELOAD) + ":" + CASES_BOOT_ID}};
}

}  // namespace

// The world lies on two hosts; the splits within a host shunt, one across does not.
TEST_CASE("job: hosts", "[.]") {
  const Rank rank;
  const ncclComm_t world = rank.connect();
  run_some(rank, world);
  const Stream stream;
  for (const int color : {rank.rank / 2, rank.rank % 2}) {
    ncclComm_t part = nullptr;
    NCCL(ncclCommSplit(world, color, rank.rank, &part, nullptr));
    Memory value(4);
    value.put(as_bytes({static_cast<float>(rank.rank)}));
    NCCL(ncclAllReduce(value.at(), value.at(), 1, ncclFloat32, ncclSum, part, stream));
    stream.wait();
    const float want = color == rank.rank / 2 ? static_cast<float>(rank.rank / 2 * 4 + 1)
                                              : static_cast<float>(rank.rank % 2 * 2 + 2);
    if (rank.rank != 0 && rank.rank != 3) ENSURE(value.get(4) == as_bytes({want}));
    NCCL(ncclCommDestroy(part));
  }
  NCCL(ncclCommDestroy(world));
}

TEST_CASE("case_39_two_hosts") {
  const TemporaryFile first("shunt-boot-first"), second("shunt-boot-second");
  JobOptions all;
  all.ranks = 4;
  all.of_rank = [&](int rank) {
    return rank < 2 ? file_of_boot_id(first, "6dd4fd3a-0f0e-4b9c-8f5e-5a4d6f0f6b01")
                    : file_of_boot_id(second, "6dd4fd3a-0f0e-4b9c-8f5e-5a4d6f0f6b02");
  };
  Job job("hosts", all);
  REQUIRE(job.trouble(60) == "");
  const std::string output = job.output();
  INFO(output);
  CHECK(
      lines_of(output, "info", {"of 4 ranks: off: ranks 0 and 2 are on different hosts"}).size() ==
      1);
  CHECK(lines_of(output, "info", {"of 2 ranks: on"}).size() == 2);
  CHECK(lines_of(output, "info", {"of 2 ranks: off", "different hosts"}).size() == 2);
  CHECK(lines_of(output, "warning").empty());
  CHECK(total(output, "shunted") == 4);
  CHECK(total(output, "forwarded") == 4 * (3 + 1));
}

// Device 0 of each process, whatever that is.
TEST_CASE("job: first visible", "[.]") {
  const Rank rank(0);
  char bus[32] = {};
  CU(cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
  std::printf("rank %d uses %s\n", rank.rank, bus);
  std::fflush(stdout);
  const ncclComm_t comm = rank.connect();
  run_some(rank, comm);
  NCCL(ncclCommDestroy(comm));
}

// The whole UUID of each emulated GPU.
TEST_CASE("job: uuids", "[.]") {
  const Rank rank;
  for (int gpu = 0; gpu < 8; ++gpu) {
    CUuuid uuid{};
    CU(cuDeviceGetUuid(&uuid, gpu));
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char digits[8];
      std::snprintf(digits, sizeof(digits), "%02x%s", uuid.bytes[i] & 0xff,
                    i == 3 || i == 5 || i == 7 || i == 9 ? "-" : "");
      text += digits;
    }
    std::memcpy(rank.shared.data + 64 * gpu, text.c_str(), text.size() + 1);
  }
}

namespace {

JobOptions visible(const std::vector<std::string>& lists, Environment more = {}) {
  JobOptions all;
  all.ranks = static_cast<int>(lists.size());
  all.environment = std::move(more);
  all.of_rank = [lists](int rank) {
    return Environment{{"CUDA_VISIBLE_DEVICES", lists[static_cast<size_t>(rank)]}};
  };
  return all;
}

void expect_shunting(const JobOptions& options, const std::vector<std::string>& buses) {
  Job job("first visible", options);
  REQUIRE(job.trouble(60) == "");
  INFO(job.output());
  for (int r = 0; r < options.ranks; ++r) {
    CHECK(job.output(r).find("uses 0000:" + buses[static_cast<size_t>(r)]) != std::string::npos);
  }
  const auto n = static_cast<unsigned>(options.ranks);
  CHECK(total(job.output(), "shunted") == n * (n == 2 ? 3 : 2));
  CHECK(lines_of(job.output(), "warning").empty());
}

}  // namespace

TEST_CASE("case_40_visible_devices") {
  Job asked("uuids", {.ranks = 1});
  REQUIRE(asked.trouble(60) == "");
  std::vector<std::string> uuid;
  for (int gpu = 0; gpu < 8; ++gpu) {
    uuid.push_back(reinterpret_cast<const char*>(asked.shared().data) + 64 * gpu);
  }
  // GPU 2 is on bus 0x24, 5 on 0x42, 3 on 0x2e, 1 on 0x1a, 7 on 0x56.
  expect_shunting(visible({"2", "5"}), {"24", "42"});
  expect_shunting(visible({"3,1,5", "1,3"}), {"2e", "1a"});
  expect_shunting(visible({uuid[5], uuid[2] + "," + uuid[5]}), {"42", "24"});
  expect_shunting(visible({"7", uuid[1], "3,2"}), {"56", "1a", "2e"});

  // The right GPUs: a fault between exactly these two is met, and named by rank; others are not.
  Job broken("first visible", visible({"5", uuid[2]}, {{"EMU_DROP", "5>2"}}));
  REQUIRE(broken.trouble(60) == "");
  CHECK(lines_of(broken.output(), "warning", {"push does not work", "rank 0 -> rank 1"}).size() == 1);
  CHECK(lines_of(broken.output(), "info", {"on, host"}).size() == 1);
  expect_shunting(visible({"5", uuid[2]}, {{"EMU_DROP", "0>1,1>0,5>0,0>2"}}), {"42", "24"});

  // Two ranks on one GPU, each under another name.
  Job same("nothing", visible({"4,5", uuid[4]}));
  same.wait_all(20);
  CHECK(total(same.output(), "shunted") == 0);
}

// Two processes with one GPU: NCCL's own business.
TEST_CASE("job: nothing", "[.]") {
  const Rank rank(0);
  ncclComm_t comm = nullptr;
  const ncclUniqueId id = rank.unique_id(0);
  const ncclResult_t made = ncclCommInitRank(&comm, rank.ranks, id, rank.rank);
  std::printf("made %d\n", made);
  if (made == ncclSuccess) run_some(rank, comm);
}

TEST_CASE("job: settings", "[.]") {
  const Rank rank;
  const ncclComm_t comm = rank.connect();
  run_some(rank, comm);
  NCCL(ncclCommDestroy(comm));
}

TEST_CASE("case_41_settings_differ") {
  const auto run = [](const char* name, std::vector<std::string> values, Environment more = {}) {
    JobOptions all;
    all.ranks = static_cast<int>(values.size());
    all.environment = std::move(more);
    all.of_rank = [=](int rank) { return Environment{{name, values[static_cast<size_t>(rank)]}}; };
    Job job("settings", all);
    INFO(name << " of " << values.size() << " ranks");
    REQUIRE(job.trouble(60) == "");
    return job.output();
  };
  // Calls of 4, 4000 and 80,000 bytes.
  std::string output = run("SHUNT_CAP", {"64K", "1K", "100K"});
  CHECK(lines_of(output, "info", {"cap 1024 bytes", "differ"}).size() == 1);
  CHECK(total(output, "shunted") == 3 * 1);
  output = run("SHUNT_CAP", {"(unset)", "100000"});  // then nothing is measured, and the fixed cap is larger
  CHECK(lines_of(output, "info", {"cap 100000 bytes", "differ"}).size() == 1);
  CHECK(total(output, "shunted") == 2 * 3);
  output = run("SHUNT_CAP", {"4000", "4000"});
  CHECK(lines_of(output, "info", {"cap 4000 bytes"}).size() == 1);
  CHECK(lines_of(output, "info", {"differ"}).empty());
  CHECK(total(output, "shunted") == 2 * 2);
  output = run("SHUNT_CAP", {"4000", "0"});  // nothing is shunted: off
  CHECK(total(output, "shunted") == 0);
  for (const char* off : {"off", "0", "false", "no", ""}) {
    output = run("SHUNT_ENABLE", {"on", off, "on"});
    CHECK(lines_of(output, "info", {"off: switched off", "rank 1"}).size() == 1);
    CHECK(total(output, "shunted") == 0);
    CHECK(total(output, "forwarded") == 3 * 3);
  }
  output = run("SHUNT_ENABLE", {"on", "auto"});
  CHECK(lines_of(output, "info", {"on, push", "differ"}).size() == 1);
  // NVLink: only where all ranks insist.
  const Environment nvlink = {{"EMU_NVLINK", "*"}};
  output = run("SHUNT_ENABLE", {"on", "auto"}, nvlink);
  CHECK(lines_of(output, "info", {"off: all GPUs are joined by NVLink"}).size() == 1);
  output = run("SHUNT_ENABLE", {"on", "on"}, nvlink);
  CHECK(total(output, "shunted") == 2 * 3);
  output = run("SHUNT_ENABLE", {"auto", "auto", "auto"}, {{"EMU_NVLINK", "0-1,1-2"}});
  CHECK(total(output, "shunted") == 3 * 2);  // not all pairs
}

// Nothing that its caller's environment says counts, and the other ranks are told that it is off.
TEST_CASE("case_41_set_uid_programs") {
  const TemporaryFile log("shunt-set-uid-log");
  const std::string kSaid = "runs with more rights than its caller";
  for (const int set_uid : {1, 2}) {
    JobOptions all;
    all.of_rank = [&](int rank) {
      if (rank >= set_uid) return Environment{};
      return Environment{{"LD_PRELOAD", std::string(CASES_PRELOAD) + ":" + CASES_SET_UID},
                         {"SHUNT_LOG", "off"},
                         {"SHUNT_LOG_FILE", log.path()},
                         {"SHUNT_CAP", "nonsense"},
                         {"SHUNT_NONE", "1"}};
    };
    Job job("settings", all);
    REQUIRE(job.trouble(60) == "");
    INFO(job.output());
    CHECK(!std::filesystem::exists(log.path()));
    for (int rank = 0; rank < set_uid; ++rank) {
      CHECK(lines_of(job.output(rank), "info", {kSaid}).size() == 1);
      CHECK(job.output(rank).find("nonsense") == std::string::npos);
      CHECK(job.output(rank).find("SHUNT_NONE") == std::string::npos);
      CHECK(job.output(rank).find(" stats ") == std::string::npos);
    }
    CHECK(lines_of(job.output(), "info", {"off: switched off", "rank 0"}).size() == 1);
    CHECK(total(job.output(), "shunted") == 0);
    CHECK(total(job.output(), "forwarded") == (set_uid == 1 ? 3 : 0));
  }
}

namespace {

enum Flag { kMessage };

// Two communicators of one rank, and calls on them of several sizes that add 1 + 2.
struct Pair {
  explicit Pair(const Rank& r) : rank(r), a(r.connect(0)), b(r.connect(1)), c(r.connect(2)) {}
  void call(ncclComm_t comm, size_t bytes, size_t place) const {
    NCCL(ncclAllReduce(memory.at(place << 20), memory.at(place << 20), bytes / 4, ncclFloat32,
                       ncclSum, comm, stream));
  }
  void fill() const {
    Bytes all = as_bytes(std::vector<float>(memory.bytes() / 4, static_cast<float>(rank.rank + 1)));
    memory.put(all);
  }
  void require_sums(std::initializer_list<size_t> bytes) const {
    stream.wait(10);
    size_t place = 0;
    for (const size_t size : bytes) {
      REQUIRE(memory.get(size, place++ << 20) == as_bytes(std::vector<float>(size / 4, 3)));
    }
  }

  const Rank& rank;
  ncclComm_t a, b, c;
  Stream stream;
  Memory memory{3 << 20};
};

constexpr size_t kSmall = 4096, kLarge = 512 << 10;

}  // namespace

// One rank tells the other, outside of NCCL, that it has made its call; the call may not have
// waited.
TEST_CASE("job: message", "[.]") {
  const Rank rank;
  const Pair pair(rank);
  for (uint32_t turn = 1; turn <= 20; ++turn) {
    const size_t bytes = turn % 3 == 0 ? kLarge : kSmall;
    const ncclComm_t comm = turn % 2 == 0 ? pair.b : pair.a;
    pair.fill();
    const bool first = static_cast<int>(turn % 2) == rank.rank;
    if (!first) rank.wait_for(kMessage, turn, 10);
    if (turn % 5 == 0) NCCL(ncclGroupStart());
    pair.call(comm, bytes, 0);
    if (turn % 5 == 0) NCCL(ncclGroupEnd());
    if (first) rank.set(kMessage, turn);
    pair.require_sums({bytes});
    rank.barrier(10);
  }
}

// Rank 0 in a group, rank 1 call by call on one stream, in the same order.
TEST_CASE("job: grouped alone", "[.]") {
  const Rank rank;
  const Pair pair(rank);
  const bool three = std::getenv("HOSTS_THREE") != nullptr;
  for (uint32_t turn = 0; turn < 27; ++turn) {
    const size_t sizes[] = {turn % 3 == 0 ? kLarge : kSmall, turn / 3 % 3 == 0 ? kLarge : kSmall,
                            turn / 9 == 0 ? kLarge : kSmall};
    // Forwarded, shunted, forwarded: NCCL's group, which holds both forwarded ones, cannot be
    // split.
    if (three && sizes[0] == kLarge && sizes[1] == kSmall && sizes[2] == kLarge) continue;
    pair.fill();
    rank.barrier(10);
    const bool grouped = static_cast<int>(turn % 2) == rank.rank;
    if (grouped) NCCL(ncclGroupStart());
    pair.call(pair.a, sizes[0], 0);
    pair.call(pair.b, sizes[1], 1);
    if (three) pair.call(pair.c, sizes[2], 2);
    if (grouped) NCCL(ncclGroupEnd());
    INFO("turn " << turn << ": " << sizes[0] << ", " << sizes[1] << ", " << sizes[2]);
    if (three) {
      pair.require_sums({sizes[0], sizes[1], sizes[2]});
    } else {
      pair.require_sums({sizes[0], sizes[1]});
    }
  }
}

TEST_CASE("case_42_message_between_calls") {
  Job job("message", {});
  REQUIRE(job.trouble(60) == "");
  CHECK(lines_of(job.output(), "error").empty());
  CHECK(total(job.output(), "shunted") > 20);
}

TEST_CASE("case_42_grouped_on_one_rank_only") {
  Job job("grouped alone", {});
  CHECK(job.trouble(60) == "");
  Job three("grouped alone", {.environment = {{"HOSTS_THREE", "1"}}});
  CHECK(three.trouble(60) == "");
}
