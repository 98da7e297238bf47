// Everything together, as a seed draws it, under hostile memory and through the library that users preload:
// types, operations, sizes on both sides of the cap, eager calls on two streams, groups, graphs, and a
// second communicator that is split anew now and then, of all ranks or fewer. Each result is compared bit by
// bit. What all ranks must do alike comes from one generator, what may differ between them from another.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "test/cases/exchange.h"
#include "test/cases/job.h"
#include "test/cases/shapes_data.h"

using namespace cases;

namespace {

constexpr unsigned char kPoison = 0x7b;
constexpr size_t kGuard = 256;
constexpr size_t kGraphs = 2;

// A communicator, as one rank has it.
struct Link {
  ncclComm_t comm = nullptr;
  int rank = -1;  // -1: no part of it
  int ranks = 0;
};

// One all-reduce, drawn alike by all ranks.
struct Draw {
  uint64_t serial = 0;
  size_t link = 0;
  DataType type{};
  ReduceOp op{};
  size_t count = 0;
};

// One rank's part of an all-reduce, with buffers and a stream of its own choice. Nothing here waits.
class Call {
 public:
  Call(const Draw& draw, const Link& link, size_t cap, CUstream stream, Random& own)
      : draw_(draw),
        link_(link),
        shunted_(draw.count > 0 && link.ranks > 1 && bytes() <= cap),
        stream_(stream),
        in_place_(own.below(3) == 0),
        send_at_(kGuard + own.below(19) * size_of(draw.type)),
        recv_at_(kGuard + own.below(19) * size_of(draw.type)),
        send_(arena_bytes()),
        recv_(arena_bytes()),
        input_(arena_bytes()),
        output_(arena_bytes()) {}

  bool shunted() const { return shunted_; }

  // Not before the last round was checked.
  void fill(uint64_t round) {
    const uint64_t data = hash_of(draw_.serial, round);
    inputs_ = all_inputs(draw_.type, draw_.count, data % 2 == 0, link_.ranks, data);
    // NCCL adds in another order: with whole numbers that does not show.
    for (size_t r = 0; !shunted_ && r < inputs_.size(); ++r) {
      inputs_[r] = whole_numbers(draw_.type, draw_.op, draw_.count, hash_of(data, r));
    }
    const Bytes& mine = inputs_[static_cast<size_t>(link_.rank)];
    auto* staging = reinterpret_cast<unsigned char*>(input_.words());
    std::memset(staging, kPoison, arena_bytes());
    if (!mine.empty()) std::memcpy(staging + from(), mine.data(), mine.size());
    CU(cuMemsetD8Async(recv_.address(), kPoison, arena_bytes(), stream_));
    CU(cuMemcpyHtoDAsync(sent().address(), staging, arena_bytes(), stream_));
  }
  void enqueue() const {
    NCCL(ncclAllReduce(sent().at(from()), recv_.at(recv_at_), draw_.count, nccl_type(draw_.type),
                       nccl_op(draw_.op), link_.comm, stream_));
  }
  void fetch() const {
    CU(cuMemcpyDtoHAsync(output_.words(), recv_.address(), arena_bytes(), stream_));
  }
  // After the stream has ended.
  void check() const {
    INFO(name_of(draw_.type, draw_.op, draw_.count)
         << " on communicator " << draw_.link << " of " << link_.ranks << " ranks, "
         << (shunted_ ? "shunted" : "forwarded") << (in_place_ ? ", in place" : ""));
    const auto* got = reinterpret_cast<const unsigned char*>(output_.words());
    for (size_t i = 0; i < arena_bytes(); ++i) {
      if (i == recv_at_) i += bytes();
      if (i < arena_bytes() && got[i] != kPoison) FAIL("byte " << i << " beside the result changed");
    }
    require_same(draw_.type, draw_.op, inputs_, Bytes(got + recv_at_, got + recv_at_ + bytes()));
  }

 private:
  size_t bytes() const { return draw_.count * size_of(draw_.type); }
  size_t arena_bytes() const { return (kGuard * 3 + bytes() + 15) / 16 * 16; }
  const Memory& sent() const { return in_place_ ? recv_ : send_; }
  size_t from() const { return in_place_ ? recv_at_ : send_at_; }

  const Draw draw_;
  const Link link_;
  const bool shunted_;
  const CUstream stream_;
  const bool in_place_;
  const size_t send_at_, recv_at_;
  const Memory send_, recv_;
  const Pinned input_, output_;
  std::vector<Bytes> inputs_;
};

using Calls = std::vector<std::unique_ptr<Call>>;

class Program {
 public:
  Program(const Rank& rank, uint64_t seed, size_t cap)
      : rank_(rank), cap_(cap), all_(seed), own_(seed * 16 + static_cast<uint64_t>(rank.rank)) {
    links_[0] = {rank.connect(), rank.rank, rank.ranks};
    split();
    for (size_t g = 0; g < kGraphs; ++g) capture(g);
  }

  void step(int number) {
    INFO("step " << number);
    step_ = number;
    switch (all_.below(10)) {
      case 0:
        return renew_split();
      case 1:
        return capture(all_.below(kGraphs));
      case 2:
      case 3:
      case 4:
        return replay(all_.below(kGraphs));
      case 5:
      case 6:
      case 7:
        return group();
      default:
        return eager();
    }
  }

  void end() {
    for (auto& captured : captured_) captured = {};
    rank_.barrier();
    if (links_[1].comm != nullptr) NCCL(ncclCommDestroy(links_[1].comm));
    NCCL(ncclCommDestroy(links_[0].comm));
  }

  uint32_t shunted() const { return shunted_; }
  uint32_t forwarded() const { return forwarded_; }

 private:
  struct Captured {
    Calls calls;
    std::unique_ptr<Graph> graph;
  };

  Draw draw() {
    Draw d;
    d.serial = ++draws_;
    d.link = all_.below(2);
    d.type = static_cast<DataType>(all_.below(shunt::kDataTypes));
    d.op = static_cast<ReduceOp>(all_.below(shunt::kReduceOps));
    const size_t most = cap_ / size_of(d.type);
    switch (all_.below(8)) {
      case 0:
        d.count = all_.below(4);
        break;
      case 1:
        d.count = most - all_.below(3);
        break;
      case 2:
        d.count = most + 1 + all_.below(most / 2);
        break;
      case 3:
      case 4:
        d.count = 1 + all_.below(most);
        break;
      default:
        d.count = 1 + all_.below(most / 8);
    }
    const bool exact = d.count == 0 || d.count <= most || d.op == ReduceOp::kMax ||
                       d.op == ReduceOp::kMin || !is_float(d.type);
    // Forwarded ones must be exact in any order, rounded at every hop.
    if (!exact && (is_float8(d.type) || d.op == ReduceOp::kAvg)) d.op = ReduceOp::kMax;
    return d;
  }

  // Some calls, of which this rank keeps those of communicators that it is in. `one_each`: whether no
  // communicator has two.
  Calls draw_calls(size_t most, bool any_stream, bool* one_each = nullptr) {
    Calls calls;
    size_t of_link[2] = {};
    const size_t count = 1 + all_.below(most);
    for (size_t i = 0; i < count; ++i) {
      const Draw d = draw();
      ++of_link[d.link];
      if (links_[d.link].rank < 0) continue;
      const Stream& stream = streams_[any_stream ? own_.below(2) : forked_ ? d.link : 0];
      calls.push_back(std::make_unique<Call>(d, links_[d.link], cap_, stream, own_));
    }
    if (one_each != nullptr) *one_each = of_link[0] < 2 && of_link[1] < 2;
    return calls;
  }

  void enqueue(const Calls& calls) {
    for (const auto& call : calls) {
      if (own_.below(8) == 0) pause_us(own_.below(400));
      ++(call->shunted() ? shunted_ : forwarded_);
      call->enqueue();
    }
  }
  void fill(const Calls& calls) {
    ++rounds_;
    for (const auto& call : calls) call->fill(rounds_);
  }
  void finish(const Calls& calls) {
    for (const auto& call : calls) call->fetch();
    wait();
    for (const auto& call : calls) call->check();
  }
  // Not by way of destructors if it fails: freeing memory would wait for the kernel that never ends.
  void wait() const {
    for (const Stream& stream : streams_) {
      const CUresult result = stream.end(30);
      if (result == CUDA_SUCCESS) continue;
      std::printf("step %d: a stream gives %d\n", step_, static_cast<int>(result));
      std::fflush(stdout);
      std::_Exit(3);
    }
  }

  void eager() {
    const Calls calls = draw_calls(5, true);
    fill(calls);
    enqueue(calls);
    finish(calls);
  }

  // A rank may do without the group where no communicator has two calls in it.
  void group() {
    bool one_each = false;
    const Calls calls = draw_calls(5, true, &one_each);
    const bool nested = all_.below(3) == 0, grouped = !one_each || own_.below(3) != 0;
    fill(calls);
    if (grouped) NCCL(ncclGroupStart());
    if (nested) NCCL(ncclGroupStart());
    enqueue(calls);
    if (nested) NCCL(ncclGroupEnd());
    if (grouped) NCCL(ncclGroupEnd());
    finish(calls);
  }

  // The second communicator's calls on a branch of their own, or in one group with the first's, or neither.
  void capture(size_t which) {
    Captured& captured = captured_[which];
    captured = {};
    forked_ = all_.below(3) == 0;
    const bool grouped = !forked_ && all_.below(2) == 0;
    captured.calls = draw_calls(3, false);
    captured.graph = std::make_unique<Graph>(streams_[0], [&] {
      Event fork, join;
      if (forked_) fork.order(streams_[0], streams_[1]);
      if (grouped) NCCL(ncclGroupStart());
      enqueue(captured.calls);
      if (grouped) NCCL(ncclGroupEnd());
      if (forked_) join.order(streams_[1], streams_[0]);
    });
    forked_ = false;
  }

  void replay(size_t which) {
    const Captured& captured = captured_[which];
    for (size_t times = 1 + all_.below(3); times > 0; --times) {
      fill(captured.calls);
      wait();  // for the side branch's own stream
      if (own_.below(4) == 0) pause_us(own_.below(1000));
      captured.graph->launch(streams_[0]);
      wait();
      finish(captured.calls);
    }
  }

  // Of all ranks, of two halves, or of the first few; in either order.
  void split() {
    const int ranks = links_[0].ranks, own = links_[0].rank;
    const int first = 1 + static_cast<int>(all_.below(static_cast<size_t>(ranks)));
    const int kind = static_cast<int>(all_.below(3)), sign = all_.below(2) == 0 ? 1 : -1;
    int color = 0;
    if (kind == 1) color = own < first ? 0 : 1;
    if (kind == 2) color = own < first ? 0 : NCCL_SPLIT_NOCOLOR;
    Link& link = links_[1];
    link = {};
    NCCL(ncclCommSplit(links_[0].comm, color, sign * own, &link.comm, nullptr));
    if (link.comm == nullptr) return;
    NCCL(ncclCommUserRank(link.comm, &link.rank));
    NCCL(ncclCommCount(link.comm, &link.ranks));
  }

  void renew_split() {
    for (auto& captured : captured_) captured = {};
    if (links_[1].comm != nullptr) NCCL(ncclCommDestroy(links_[1].comm));
    split();
    for (size_t g = 0; g < kGraphs; ++g) capture(g);
  }

  struct Event {
    Event() { CU(cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING)); }
    ~Event() { cuEventDestroy(handle); }
    void order(CUstream first, CUstream then) const {
      CU(cuEventRecord(handle, first));
      CU(cuStreamWaitEvent(then, handle, 0));
    }
    CUevent handle = nullptr;
  };

  const Rank& rank_;
  const size_t cap_;
  Random all_, own_;
  const Stream streams_[2];
  Link links_[2];
  Captured captured_[kGraphs];
  bool forked_ = false;
  int step_ = -1;
  uint64_t draws_ = 0, rounds_ = 0;
  uint32_t shunted_ = 0, forwarded_ = 0;
};

enum Flag { kShunted, kForwarded };  // shared.flags: sums over all ranks

}  // namespace

TEST_CASE("job: mixed program", "[.]") {
  const Rank rank;
  const auto seed = static_cast<uint64_t>(number_of("CASES_SEED"));
  const auto cap = static_cast<size_t>(number_of("SHUNT_CAP"));
  const int steps = number_of("CASES_STEPS");
  Program program(rank, seed, cap);
  for (int step = 0; step < steps; ++step) program.step(step);
  rank.shared.flags[kShunted].fetch_add(program.shunted());
  rank.shared.flags[kForwarded].fetch_add(program.forwarded());
  program.end();
}

namespace {

struct Tally {
  unsigned long long jobs = 0, repeated = 0, shunted = 0, forwarded = 0;
  size_t wrong = 0;
};

int number_or(const char* variable, int otherwise) {
  return std::getenv(variable) != nullptr ? number_of(variable) : otherwise;
}

// False: the machine was so loaded that a probe met its deadline, and a communicator forwards, rightly.
bool run_seed(int ranks, int seed, bool last, Tally& tally) {
  constexpr const char* kCaps[] = {"2048", "4096", "4096", "16384"};
  constexpr const char* kDelays[] = {"*:0", "*:300", "0:2000"};
  JobOptions options{.ranks = ranks};
  options.environment = {{"CASES_SEED", std::to_string(seed)},
                         {"CASES_STEPS", std::to_string(number_or("CASES_STEPS", 25))},
                         {"EMU_HOSTILE", std::to_string(seed)},
                         {"EMU_KERNEL_DELAY_US", kDelays[seed % 3]},
                         {"SHUNT_CAP", kCaps[seed % 4]}};
  Job job("mixed program", options);
  std::string trouble = job.trouble(100);
  const std::string output = job.output();
  if (!last && count_of(output, "the probe's kernels do not end") != 0) return false;
  const auto called = [&](Flag flag) -> unsigned long long { return job.shared().flags[flag]; };
  const auto more = [&](bool wrong, const std::string& what) {
    if (trouble.empty() && wrong) trouble = what + "\n" + output;
  };
  more(total(output, "shunted") != called(kShunted), "calls on the wrong path");
  more(total(output, "forwarded") != called(kForwarded), "calls on the wrong path");
  more(count_of(output, "emulated cuda:") != 0, "misuse of the driver");
  more(!lines_of(output, "warning").empty() || !lines_of(output, "error").empty(), "complaints");
  ++tally.jobs;
  tally.shunted += called(kShunted);
  tally.forwarded += called(kForwarded);
  if (trouble.empty()) return true;
  ++tally.wrong;
  FAIL_CHECK("CASES_RANKS=" << ranks << " CASES_FIRST_SEED=" << seed << " CASES_SEEDS=1: " << trouble);
  return true;
}

void run_seeds(const std::vector<int>& ranks, int first, int seeds) {
  Tally tally;
  for (int seed = first; seed < first + seeds; ++seed) {
    for (const int n : ranks) {
      if (tally.wrong >= 10) continue;
      for (int turn = 0; !run_seed(n, seed, turn == 3, tally); ++turn) ++tally.repeated;
    }
    if ((seed - first + 1) % 50 == 0 || seed == first + seeds - 1) {
      std::printf(
          "mixed program: %llu jobs (%llu more on a loaded machine), %llu calls shunted, %llu "
          "forwarded, %zu wrong\n",
          tally.jobs, tally.repeated, tally.shunted, tally.forwarded, tally.wrong);
      std::fflush(stdout);
    }
  }
  CHECK(tally.shunted > 0);
  CHECK(tally.forwarded > 0);
}

}  // namespace

TEST_CASE("mixed_program_under_hostile_memory") { run_seeds({2, 3, 5}, 1, 2); }

// CASES_SEEDS of them from CASES_FIRST_SEED on, with 2, 3, 4, 5 and 8 ranks, or with CASES_RANKS.
TEST_CASE("mixed_program_nightly", "[.]") {
  std::vector<int> ranks{2, 3, 4, 5, 8};
  if (std::getenv("CASES_RANKS") != nullptr) ranks = {number_of("CASES_RANKS")};
  run_seeds(ranks, number_or("CASES_FIRST_SEED", 1000), number_or("CASES_SEEDS", 1000));
}
