// Runs the all-reduce kernel on n ranks in one process, on one GPU (results only: their times mean
// nothing) or on one GPU each, checks every result bit for bit across ranks and against a reference, for each
// type, operation, placement and shot, and times it in a graph of 50 calls, for several launch shapes.
//   kernel_harness --ranks N,N,... [--same-gpu] [--check] [--sweep] [--placement NAME] [--json FILE]
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "shim/engine/launch.h"
#include "shim/engine/log.h"
#include "test/protocol/numbers.h"

namespace shunt {
namespace {

constexpr int kCallsInGraph = 50;
constexpr int kReplays = 9;
constexpr size_t kCap = 1 << 20;

struct Options {
  std::vector<uint32_t> all_ranks{2};
  uint32_t ranks = 2;
  std::string placement;  // empty: all of them to check, push to time
  bool same_gpu = false;
  bool check = false;
  bool sweep = false;
  std::string json;
};

struct Rank {
  const GpuDevice* device = nullptr;
  std::unique_ptr<PrivateStream> stream;
  std::unique_ptr<SlabSet> set;
  cu::Ptr send = 0, recv = 0;  // kCap + 64 bytes each
  cu::GraphExec graph = nullptr;
};

// Timing wants events with time and elapsed time, which the product does not use.
struct Timing {
  cu::Result (*elapsed)(float*, cu::Event, cu::Event) = nullptr;
  cu::Result (*stream_sync)(cu::Stream) = nullptr;
};

class Harness {
 public:
  Harness(const Options& options, const DeviceLimits& limits, Placement placement);
  // `messages`: that the elements are cut into, which one kernel reduces.
  bool check(DataType type, ReduceOp op, size_t count, size_t misalign, size_t messages);
  // Median microseconds a call of the slowest rank, in a graph.
  double time(size_t bytes, DataType type);

 private:
  void wait_all();
  void enqueue(Rank& rank, size_t count, DataType type, ReduceOp op, size_t misalign, size_t messages = 1);

  Options options_;
  DeviceLimits limits_;
  std::vector<Rank> ranks_;
  uint32_t calls_ = 0;
  sim::Rng random_{1234};
};

Harness::Harness(const Options& options, const DeviceLimits& limits, Placement placement)
    : options_(options), limits_(limits), ranks_(options.ranks) {
  const Geometry geometry = plan_geometry(options.ranks, kCap, limits, placement);
  std::vector<Facts> facts(options.ranks);
  std::vector<SlabOffer> offers(options.ranks);
  for (uint32_t r = 0; r < options.ranks; ++r) {
    Rank& rank = ranks_[r];
    rank.device = &gpu_device(options.same_gpu ? 0 : static_cast<cu::Device>(r));
    load_kernels(*rank.device);
    cu::ContextScope current(rank.device->context);
    rank.stream = std::make_unique<PrivateStream>(*rank.device);
    rank.set = std::make_unique<SlabSet>(*rank.device, geometry, r, rank.stream->get());
    rank.set->offer(offers[r]);
    std::memcpy(facts[r].gpu, rank.device->uuid.bytes, sizeof(facts[r].gpu));
    SHUNT_CU(mem_alloc, &rank.send, kCap + 64);
    SHUNT_CU(mem_alloc, &rank.recv, kCap + 64);
  }
  for (Rank& rank : ranks_) {
    int failed = -1;
    rank.set->map_peers(facts, offers, failed);
  }
}

void Harness::enqueue(Rank& rank, size_t count, DataType type, ReduceOp op, size_t misalign, size_t messages) {
  cu::ContextScope current(rank.device->context);
  std::vector<AllReduceCall> calls;
  for (size_t i = 0, from = 0; i < messages; ++i) {
    // Of any lengths, the last one takes the rest.
    const size_t left = messages - i - 1;
    const size_t most = left == 0 ? count - from : (count - from - left) * 2 / (left + 1) + 1;
    const size_t here = left == 0 ? most : std::min(1 + (i * 7919 + count) % most, count - from - left);
    const size_t at = misalign + from * size_of(type);
    calls.push_back({reinterpret_cast<const void*>(rank.send + at), reinterpret_cast<void*>(rank.recv + at), here,
                     type, op, rank.stream->get()});
    from += here;
  }
  cu::check(launch_all_reduce(*rank.set, limits_, calls, calls_), "cuLaunchKernel");
}

void Harness::wait_all() {
  for (Rank& rank : ranks_) {
    cu::ContextScope current(rank.device->context);
    while (!rank.stream->idle()) {
    }
  }
}

bool Harness::check(DataType type, ReduceOp op, size_t count, size_t misalign, size_t messages) {
  const size_t bytes = count * size_of(type);
  std::vector<sim::Bytes> in;
  for (size_t r = 0; r < ranks_.size(); ++r) in.push_back(sim::make_input(type, count, false, random_));
  for (size_t r = 0; r < ranks_.size(); ++r) {
    cu::ContextScope current(ranks_[r].device->context);
    SHUNT_CU(copy_to_device, ranks_[r].send + misalign, in[r].data(), bytes, ranks_[r].stream->get());
    SHUNT_CU(set32, ranks_[r].recv, 0xdeadbeefu, (kCap + 64) / 4, ranks_[r].stream->get());
  }
  wait_all();
  ++calls_;
  for (Rank& rank : ranks_) enqueue(rank, count, type, op, misalign, messages);
  std::vector<sim::Bytes> out(ranks_.size(), sim::Bytes(misalign + bytes + size_of(type)));
  for (size_t r = 0; r < ranks_.size(); ++r) {
    cu::ContextScope current(ranks_[r].device->context);
    SHUNT_CU(copy_to_host, out[r].data(), ranks_[r].recv, out[r].size(), ranks_[r].stream->get());
  }
  wait_all();
  const sim::Bytes sum = sim::reduce(type, op, count, in);
  const sim::Bytes& first = out[0];
  for (size_t i = 0; i < first.size(); ++i) {
    // Nothing before the message and nothing after it is written.
    constexpr unsigned char kPoison[] = {0xef, 0xbe, 0xad, 0xde};
    const bool inside = i >= misalign && i < misalign + bytes;
    if (!inside && first[i] != kPoison[i % 4]) return false;
    if (!inside || (i - misalign) % size_of(type) != 0) continue;
    if (!sim::same_element(type, op, &first[i], &sum[i - misalign])) return false;
  }
  return std::all_of(out.begin(), out.end(), [&](const sim::Bytes& o) { return o == first; });
}

double Harness::time(size_t bytes, DataType type) {
  static const Timing timing = [] {
    Timing t;
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    t.elapsed = reinterpret_cast<decltype(t.elapsed)>(dlsym(driver, "cuEventElapsedTime"));
    return t;
  }();
  const size_t count = bytes / size_of(type);
  std::vector<cu::Event> begin(ranks_.size()), end(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    cu::ContextScope current(rank.device->context);
    SHUNT_CU(event_create, &begin[r], 0);
    SHUNT_CU(event_create, &end[r], 0);
    SHUNT_CU(begin_capture, rank.stream->get(), cu::kCaptureModeRelaxed);
    const uint32_t first = calls_;
    for (int i = 0; i < kCallsInGraph; ++i) {
      ++calls_;
      enqueue(rank, count, type, ReduceOp::kSum, 0);
    }
    if (r + 1 < ranks_.size()) calls_ = first;  // the ranks record the same numbers
    cu::Graph graph = nullptr;
    SHUNT_CU(end_capture, rank.stream->get(), &graph);
    SHUNT_CU(graph_instantiate, &rank.graph, graph, 0);
    SHUNT_CU(graph_destroy, graph);
  }
  std::vector<double> times;
  for (int replay = 0; replay < kReplays + 2; ++replay) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      cu::ContextScope current(ranks_[r].device->context);
      SHUNT_CU(event_record, begin[r], ranks_[r].stream->get());
      SHUNT_CU(graph_launch, ranks_[r].graph, ranks_[r].stream->get());
      SHUNT_CU(event_record, end[r], ranks_[r].stream->get());
    }
    wait_all();
    if (replay < 2) continue;
    // The ranks of one process start one after the other: the last to start measures the calls, the
    // others its delay too.
    float least = 1e30f;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      cu::ContextScope current(ranks_[r].device->context);
      float ms = 0;
      cu::check(timing.elapsed(&ms, begin[r], end[r]), "cuEventElapsedTime");
      least = std::min(least, ms);
    }
    times.push_back(least * 1e3 / kCallsInGraph);
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    cu::ContextScope current(ranks_[r].device->context);
    SHUNT_CU(event_destroy, begin[r]);
    SHUNT_CU(event_destroy, end[r]);
    SHUNT_CU(graph_exec_destroy, ranks_[r].graph);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::vector<Placement> placements_of(const Options& options, bool every) {
  std::vector<Placement> out;
  for (uint32_t p = 0; p < kPlacements; ++p) {
    const auto placement = static_cast<Placement>(p);
    if (options.placement.empty() ? every || p == 0 : options.placement == name_of(placement)) {
      out.push_back(placement);
    }
  }
  return out;
}

bool run_checks(const Options& options, Placement placement, bool two_shot) {
  DeviceLimits limits;
  limits.two_shot_from = two_shot ? 0 : ~0u;
  // Ranks that share a GPU must all be resident, or they wait for each other for ever.
  if (options.same_gpu) limits.max_lanes = 8;
  Harness harness(options, limits, placement);
  size_t done = 0;
  for (uint32_t t = 0; t < kDataTypes; ++t) {
    const auto type = static_cast<DataType>(t);
    if (is_float8(type) && gpu_device(0).compute_major < 9) continue;
    for (uint32_t o = 0; o < kReduceOps; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      for (const size_t count : {1, 3, 7, 257, 4096, 40001}) {
        if (count > 4096 && o > 1) continue;
        for (const size_t misalign : {size_t{0}, size_t{size_of(type)}}) {
          for (const size_t messages : {size_t{1}, size_t{3}, size_t{kMaxMessages}}) {
            if (count < messages) continue;
            if (!harness.check(type, op, count, misalign, messages)) {
              std::printf("WRONG: %s %s x %zu, misaligned by %zu, %zu messages, %u ranks, %s, %s\n", name_of(type),
                          name_of(op), count, misalign, messages, options.ranks, name_of(placement),
                          two_shot ? "two shots" : "one shot");
              return false;
            }
            ++done;
          }
        }
      }
    }
  }
  std::printf("%2u ranks%s, %s, %s: %zu calls right and bit-equal\n", options.ranks,
              options.same_gpu ? " on one GPU" : "", name_of(placement),
              two_shot ? "two shots" : "one shot", done);
  std::fflush(stdout);
  return true;
}

void run_sweep(const Options& options, std::ofstream& json) {
  const std::vector<size_t> sizes = {8,     256,   1024,  4096,   8192,   16384,
                                     32768, 65536, 131072, 262144, 524288, 1048576};
  std::printf("us a call, bf16 sum, graph of %d\n%-10s", kCallsInGraph, "shape");
  for (const size_t size : sizes) std::printf("%9zu", size);
  std::printf("\n");
  for (const Placement placement : placements_of(options, false)) {
    for (const uint32_t threads : {32u, 64u, 128u, 256u}) {
      for (const uint32_t lanes : {32u, 64u, 128u}) {
        for (const bool two_shot : {false, true}) {
          const DeviceLimits limits{kMaxDataThreads / 32 * 32, lanes, threads, two_shot ? 0 : ~0u};
          Harness harness(options, limits, placement);
          std::printf("%4ux%-3u %d", threads, lanes, two_shot ? 2 : 1);
          for (const size_t size : sizes) {
            const double us = harness.time(size, DataType::kBfloat16);
            std::printf("%9.2f", us);
            json << "{\"placement\":\"" << name_of(placement) << "\",\"shots\":" << (two_shot ? 2 : 1)
                 << ",\"least_threads\":" << threads << ",\"lanes\":" << lanes << ",\"bytes\":" << size
                 << ",\"us\":" << us << "}\n";
          }
          std::printf("\n");
          std::fflush(stdout);
        }
      }
    }
  }
}

int run(Options options) {
  int devices = 0;
  try {
    SHUNT_CU(init, 0);
    SHUNT_CU(device_count, &devices);
  } catch (const cu::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  for (const uint32_t ranks : options.all_ranks) {
    if (devices < (options.same_gpu ? 1 : static_cast<int>(ranks))) {
      std::printf("skipped: %d GPUs\n", devices);
      return 77;
    }
    options.ranks = ranks;
    if (!options.check) continue;
    for (const Placement placement : placements_of(options, true)) {
      for (const bool two_shot : {false, true}) {
        if (!run_checks(options, placement, two_shot)) return 1;
      }
    }
  }
  if (options.sweep) {
    std::ofstream json(options.json.empty() ? "/dev/null" : options.json);
    run_sweep(options, json);
  }
  return 0;
}

}  // namespace
}  // namespace shunt

int main(int argc, char** argv) {
  shunt::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--ranks" && i + 1 < argc) {
      options.all_ranks.clear();
      for (const char* list = argv[++i]; list != nullptr; list = std::strchr(list, ',')) {
        options.all_ranks.push_back(static_cast<uint32_t>(std::atoi(*list == ',' ? ++list : list)));
      }
    } else if (arg == "--placement" && i + 1 < argc) {
      options.placement = argv[++i];
    } else if (arg == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else if (arg == "--same-gpu") {
      options.same_gpu = true;
    } else if (arg == "--check") {
      options.check = true;
    } else if (arg == "--sweep") {
      options.sweep = true;
    } else {
      std::fprintf(stderr, "unknown argument %s\n", arg.c_str());
      return 2;
    }
  }
  try {
    return shunt::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
