#include "shim/engine/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "shim/engine/log.h"

namespace shunt {
namespace {

constexpr int kReplays = 3;

// A call of one message, or of several that lie one behind the other and begin where no packet
// does.
struct Step {
  DataType type;
  std::vector<size_t> messages;  // bytes of each, whole words
  size_t bytes() const { return std::accumulate(messages.begin(), messages.end(), size_t{0}); }
};

// Word i of `rank` in a round: sums of up to 16 of them are exact in fp32 as in uint32.
uint32_t word_of(uint32_t rank, uint32_t i, uint32_t round) {
  uint32_t h = i * 2654435761u ^ rank * 40503u ^ round * 2246822519u;
  h ^= h >> 15;
  h *= 2654435761u;
  return (h ^ h >> 13) & 0xfffff;
}

// The buffers of one local rank, and its graph.
class Bench {
 public:
  Bench(LocalRank& local, const Verdict& verdict)
      : local_(local),
        verdict_(verdict),
        bytes_((verdict.cap + 15) / 16 * 16),
        scratch_(*local.device, 2 * bytes_ + kPacketBytes),
        device_(scratch_.device()),
        host_(scratch_.host()) {}
  ~Bench() {
    try {
      cu::ContextScope current(local_.device->context);
      if (exec_ != nullptr) cu::api().graph_exec_destroy(exec_);
    } catch (const cu::Error&) {
      // The context is gone, and the graph with it.
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void capture(std::span<const Step> steps, uint32_t first_call) {
    cu::ContextScope current(local_.device->context);
    SHUNT_CU(begin_capture, stream(), cu::kCaptureModeRelaxed);
    cu::Result result = cu::kSuccess;
    for (const Step& step : steps) {
      if (result == cu::kSuccess) result = launch(step, first_call++);
    }
    cu::Graph graph = nullptr;
    const cu::Result ended = cu::api().end_capture(stream(), &graph);
    cu::check(result, "cuLaunchKernel");
    cu::check(ended, "cuStreamEndCapture");
    result = cu::api().graph_instantiate(&exec_, graph, 0);
    cu::api().graph_destroy(graph);
    cu::check(result, "cuGraphInstantiate");
  }

  // Sends fresh data, runs `step` eagerly or the graph, and fetches the result.
  void enqueue(const Step& step, uint32_t round, uint32_t call, bool replay) {
    cu::ContextScope current(local_.device->context);
    for (uint32_t i = 0; i < step.bytes() / 4; ++i)
      put(i, step.type, word_of(local_.rank(), i, round));
    SHUNT_CU(copy_to_device, device_, host_, step.bytes(), stream());
    SHUNT_CU(set32, device_ + bytes_, 0xdeadbeefu, step.bytes() / 4, stream());
    if (replay) {
      SHUNT_CU(graph_launch, exec_, stream());
    } else {
      cu::check(launch(step, call), "cuLaunchKernel");
    }
    SHUNT_CU(copy_to_host, host_ + bytes_, device_ + bytes_, step.bytes(), stream());
    const auto slab = reinterpret_cast<cu::Ptr>(local_.set->params(Protocol::kFlagged).slab);
    SHUNT_CU(copy_to_host, host_ + 2 * bytes_, slab + Geometry::kStopOffset, sizeof(uint32_t),
             stream());
  }

  // Whether a wait came to its deadline. The reports of waits alone do not tell: one is also made
  // of a wait that went on for a millisecond and then ended well.
  bool stopped() const {
    uint32_t stop = 0;
    std::memcpy(&stop, host_ + 2 * bytes_, sizeof(stop));
    return stop != static_cast<uint32_t>(Stop::kNone);
  }

  bool right(const Step& step, uint32_t round) const {
    for (uint32_t i = 0; i < step.bytes() / 4; ++i) {
      uint32_t sum = 0;
      for (uint32_t r = 0; r < verdict_.geometry.ranks; ++r) sum += word_of(r, i, round);
      uint32_t got = 0;
      std::memcpy(&got, host_ + bytes_ + 4 * i, 4);
      const auto real = static_cast<float>(sum);
      uint32_t want = sum;
      if (step.type == DataType::kFloat32) std::memcpy(&want, &real, 4);
      if (got != want) return false;
    }
    return true;
  }

 private:
  cu::Stream stream() const { return local_.stream->get(); }
  void put(uint32_t i, DataType type, uint32_t word) {
    const auto real = static_cast<float>(word);
    std::memcpy(host_ + 4 * i, type == DataType::kFloat32 ? static_cast<const void*>(&real) : &word,
                4);
  }
  cu::Result launch(const Step& step, uint32_t call) {
    std::vector<AllReduceCall> calls;
    cu::Ptr at = device_;
    for (const size_t bytes : step.messages) {
      calls.push_back({reinterpret_cast<const void*>(at), reinterpret_cast<void*>(at + bytes_),
                       bytes / 4, step.type, ReduceOp::kSum, stream()});
      at += bytes;
    }
    return launch_all_reduce(*local_.set, verdict_.limits, calls, call,
                             static_cast<uint64_t>(kProbeSeconds * 1e9));
  }

  LocalRank& local_;
  const Verdict& verdict_;
  const size_t bytes_;
  Scratch scratch_;
  const cu::Ptr device_;
  unsigned char* const host_;
  cu::GraphExec exec_ = nullptr;
};

void wait_until_idle(LocalRank& local) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(2 * kProbeSeconds));
  cu::ContextScope current(local.device->context);
  while (!local.stream->idle()) {
    if (Clock::now() > deadline) {
      // The kernels have a deadline of their own: this one is for a device that does not run them.
      __atomic_store_n(&local.set->board()->order, static_cast<uint32_t>(HostOrder::kAbort),
                       __ATOMIC_RELEASE);
      throw cu::Error("the probe's kernels do not end", -1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
}

// The last long wait of this rank: for which peer (-1: none), in which call.
struct Missing {
  int peer = -1;
  uint32_t number = 0;
};
Missing missing_of(const LocalRank& local) {
  for (const WaitReport& report : local.set->board()->waits) {
    if (report.peer_and_one != 0 && report.peer_and_one <= kMaxRanks) {
      return {static_cast<int>(report.peer_and_one) - 1, unpack_tag(report.tag).number};
    }
  }
  return {};
}

// While no kernel runs: a report of an earlier step, of a wait that ended well, must not be taken
// for one of this step, nor by the watch for one of a user's call.
void clear_reports(LocalRank& local) {
  for (WaitReport& report : local.set->board()->waits) {
    __atomic_store_n(&report.peer_and_one, 0u, __ATOMIC_RELEASE);
  }
}

// A group's calls as one, up to the cap: each message has packets of its own, and the last one of
// each is partial.
std::vector<size_t> grouped_messages(DataType type, size_t most) {
  const Protocol protocol = protocol_of(type);
  const uint32_t packets = packets_for(protocol, most);
  if (packets == 1) return {4};
  std::vector<size_t> messages(std::min<uint32_t>(3, packets));
  for (size_t& bytes : messages) bytes = packets / messages.size() * payload_of(protocol) - 4;
  return messages;
}

// At the cap twice running: each lane then uses both parts of its mailboxes to their ends.
std::vector<Step> steps_for(uint64_t cap) {
  const size_t most = std::max<size_t>(4, cap / 4 * 4);
  std::vector<Step> steps;
  const auto single = [&](DataType type) {
    for (const size_t bytes : {size_t{4}, std::min<size_t>(4096, most), most, most})
      steps.push_back({type, {bytes}});
  };
  const auto grouped = [&](DataType type) {
    steps.push_back({type, grouped_messages(type, most)});
  };
  single(DataType::kUint32);
  grouped(DataType::kUint32);
  grouped(DataType::kFloat32);
  single(DataType::kFloat32);
  return steps;
}

}  // namespace

void refuse(Answer& answer, const std::string& why, int peer) {
  answer.ok = 0;
  answer.peer = peer;
  std::memset(answer.reason, 0, sizeof(answer.reason));
  std::memcpy(answer.reason, why.data(), std::min(why.size(), sizeof(answer.reason) - 1));
}

void probe(std::span<LocalRank> locals, const Verdict& verdict, std::span<Answer> answers,
           uint32_t& calls) {
  std::vector<std::unique_ptr<Bench>> benches(locals.size());
  const std::vector<Step> steps = steps_for(verdict.cap);
  const auto captured = static_cast<uint32_t>(steps.size());
  // A rank that gets no data holds up the others, which then miss its data in a later call: `when`
  // tells the cause from what follows.
  const auto fail = [&](size_t i, const std::string& why, int peer, uint32_t when) {
    if (answers[i].ok == 0) return;
    refuse(answers[i], why, peer);
    answers[i].when = when;
  };
  uint32_t done = 0;  // calls of the probe before this run
  // A local that saw a wrong sum goes on, since its peers wait for it; one whose calls fail cannot.
  const auto attempt = [&](size_t i, auto&& what) {
    try {
      what();
    } catch (const cu::Error& error) {
      fail(i, error.what(), missing_of(locals[i]).peer, done);
      benches[i] = nullptr;
    }
  };
  // `call`: number of the first call of this run.
  const auto run = [&](const Step& step, uint32_t round, uint32_t call, bool replay) {
    const uint32_t calls_here = replay ? captured : 1;
    for (size_t i = 0; i < locals.size(); ++i) {
      if (benches[i] == nullptr) continue;
      clear_reports(locals[i]);
      attempt(i, [&] { benches[i]->enqueue(step, round, call, replay); });
    }
    for (size_t i = 0; i < locals.size(); ++i) {
      if (benches[i] == nullptr) continue;
      attempt(i, [&] {
        wait_until_idle(locals[i]);
        if (benches[i]->stopped()) {
          const Missing missing = missing_of(locals[i]);
          fail(i, "data did not arrive in the probe", missing.peer, done + missing.number - call);
        } else if (!benches[i]->right(step, round)) {
          fail(i,
               format("wrong sum in the probe (%zu bytes%s%s): data was changed on its way",
                      step.bytes(), step.messages.size() > 1 ? " in several messages" : "",
                      replay ? ", replayed from a graph" : ""),
               -1, done + calls_here - 1);
        }
      });
    }
    done += calls_here;
  };
  for (size_t i = 0; i < locals.size(); ++i) {
    if (answers[i].ok == 0) continue;
    attempt(i, [&] {
      benches[i] = std::make_unique<Bench>(locals[i], verdict);
      benches[i]->capture(steps, calls + captured + 1);
    });
  }
  uint32_t round = 1;
  for (uint32_t s = 0; s < captured; ++s) run(steps[s], round++, calls + s + 1, false);
  // A replay runs all steps; the result of the last one is left to be checked.
  for (int replay = 0; replay < kReplays; ++replay) {
    run(steps.back(), round++, calls + captured + 1, true);
  }
  for (LocalRank& local : locals) clear_reports(local);
  calls += 2 * captured;
}

}  // namespace shunt
