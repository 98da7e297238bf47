#include "test/cases/mixed_program.h"

#include <cstdio>
#include <cstdlib>

namespace cases::mixed {
namespace {

struct Event {
  Event() { CU(cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING)); }
  ~Event() { cuEventDestroy(handle); }
  void order(CUstream first, CUstream then) const {
    CU(cuEventRecord(handle, first));
    CU(cuStreamWaitEvent(then, handle, 0));
  }
  CUevent handle = nullptr;
};

}  // namespace

Program::Program(const Rank& rank, uint64_t seed, size_t cap, int slot, int slowness)
    : rank_(rank),
      seed_(seed),
      cap_(cap),
      slowness_(slowness),
      all_(seed),
      own_(seed * 16 + static_cast<uint64_t>(rank.rank)) {
  links_[0] = {rank.connect(slot), rank.rank, rank.ranks};
  split();
  for (size_t g = 0; g < kGraphs; ++g) capture(g);
}

void Program::run(int steps) {
  for (step_ = 0; step_ < steps; ++step_) {
    INFO("seed " << seed_ << ", step " << step_);
    step();
  }
  end();
}

void Program::step() {
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

void Program::end() {
  for (auto& captured : captured_) captured = {};
  rank_.barrier();
  if (links_[1].comm != nullptr) NCCL(ncclCommDestroy(links_[1].comm));
  NCCL(ncclCommDestroy(links_[0].comm));
}

// Some calls, of which this rank keeps those of communicators that it is in. `one_each`: whether no communicator
// has two.
Calls Program::draw_calls(size_t most, bool any_stream, bool grouped, bool* one_each) {
  const bool alike = grouped && all_.below(2) == 0;  // so that they are one kernel
  std::vector<Draw> draws;
  const size_t count = 1 + all_.below(alike ? 4 * most : most);
  while (draws.size() < count) {
    draws.push_back(draw_call(all_, ++draws_, cap_, alike && !draws.empty() ? &draws.front() : nullptr));
    if (!grouped) {
      std::vector<Draw> alone{draws.back()};
      decide(alone, cap_);
      draws.back() = alone.front();
    }
  }
  if (grouped) decide(draws, cap_);
  Calls calls;
  size_t of_link[2] = {};
  for (const Draw& d : draws) {
    ++of_link[d.link];
    if (links_[d.link].rank < 0) continue;
    const Stream& stream = streams_[any_stream ? own_.below(2) : forked_ ? d.link : 0];
    calls.push_back(std::make_unique<Call>(d, links_[d.link], stream, own_));
  }
  if (one_each != nullptr) *one_each = of_link[0] < 2 && of_link[1] < 2;
  return calls;
}

void Program::fill(const Calls& calls) {
  ++rounds_;
  for (const auto& call : calls) call->fill(rounds_);
}

void Program::enqueue(const Calls& calls) {
  for (const auto& call : calls) {
    if (own_.below(8) == 0) pause_us(own_.below(400));
    ++(call->shunted() ? shunted_ : forwarded_);
    call->enqueue();
  }
}

void Program::finish(const Calls& calls) {
  for (const auto& call : calls) call->fetch();
  wait();
  for (const auto& call : calls) call->check();
}

// Not by way of destructors if it fails: freeing memory would wait for the kernel that never ends.
void Program::wait() const {
  for (const Stream& stream : streams_) {
    const CUresult result = stream.end(120.0 / slowness_);
    if (result == CUDA_SUCCESS) continue;
    std::printf("seed %llu, step %d: a stream gives %d\n", static_cast<unsigned long long>(seed_), step_,
                static_cast<int>(result));
    std::fflush(stdout);
    std::_Exit(3);
  }
}

void Program::eager() {
  const Calls calls = draw_calls(5, true, false);
  fill(calls);
  enqueue(calls);
  finish(calls);
}

// A rank may do without the group where no communicator has two calls in it.
void Program::group() {
  bool one_each = false;
  const Calls calls = draw_calls(5, true, true, &one_each);
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
void Program::capture(size_t which) {
  Captured& captured = captured_[which];
  captured = {};
  forked_ = all_.below(3) == 0;
  const bool grouped = !forked_ && all_.below(2) == 0;
  captured.calls = draw_calls(3, false, grouped);
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

void Program::replay(size_t which) {
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
void Program::split() {
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

void Program::renew_split() {
  for (auto& captured : captured_) captured = {};
  if (links_[1].comm != nullptr) NCCL(ncclCommDestroy(links_[1].comm));
  split();
  for (size_t g = 0; g < kGraphs; ++g) capture(g);
}

}  // namespace cases::mixed
