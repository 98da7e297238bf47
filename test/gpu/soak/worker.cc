#include "test/gpu/soak/worker.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "tools/worker/nccl_paths.h"
#include "tools/worker/startup.h"

namespace shunt::soak {
namespace {

int nccl_version() {
  int version = 0;
  SHUNT_NCCL(ncclGetVersion(&version));
  return version;
}

bench::PrimaryContext current_context(uint32_t device) {
  SHUNT_DRIVER(cuInit(0));
  bench::PrimaryContext context(device);
  context.make_current();
  return context;
}

uint64_t resident_bytes() {
  unsigned long pages = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  const bool read = file != nullptr && std::fscanf(file, "%lu %lu", &pages, &resident) == 2;
  if (file != nullptr) std::fclose(file);
  if (!read) throw std::runtime_error("cannot read /proc/self/statm");
  return uint64_t{resident} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t open_descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) throw std::runtime_error("cannot read /proc/self/fd");
  uint64_t count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;  // ".", ".." and the folder itself
}

}  // namespace

Worker::Worker(const Settings& settings, bench::Board& board, bench::Channel& channel,
               uint32_t rank, uint32_t device)
    : settings_(settings),
      board_(board),
      channel_(channel),
      rank_(rank),
      context_(current_context(device)),
      types_(types_of(nccl_version())),
      all_(settings.seed),
      own_(settings.seed * 64 + rank) {
  phase("make the data");
  data_ = std::make_unique<Data>(settings_, types_, rank_);
  inputs_ = std::make_unique<Inputs>(settings_, *data_, types_);
  for (bench::Stream& stream : streams_) stream = bench::make_stream();
  fork_ = bench::make_event();
  for (bench::Event& event : joins_) event = bench::make_event();
}

void Worker::run() {
  make_communicators();
  board_.barrier(rank_);  // the ranks' data took different times
  begun_ = told_ = std::chrono::steady_clock::now();
  // Arenas grow with what is drawn: their largest size now, for memory to be flat from here on.
  for (Captured& captured : captured_)
    captured.arena.reserve(kGraphBytes + 2 * settings_.graph_calls * 128);
  for (Arena& arena : eager_) arena.reserve(kEagerBytes + settings_.eager_calls * 128);
  report_memory();
  for (uint32_t g = 0; g < kGraphs; ++g) capture(g);
  while (!finished()) {
    round();
    if (counts_.calls() - renewed_at_ >= settings_.communicator_calls) renew();
  }
  renew();  // to compare memory in the same state
  forget_graphs();
  destroy_communicators();
  report("result");
  phase("finished");
}

double Worker::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
}

// Alike on all ranks: by the number of calls, or by the first rank's clock.
bool Worker::finished() {
  if (settings_.calls != 0 && counts_.calls() >= settings_.calls) return true;
  if (settings_.seconds == 0 || counts_.rounds % 8 != 0) return false;
  const bool late = rank_ == 0 && elapsed() >= static_cast<double>(settings_.seconds);
  return board_.largest(rank_, late ? 1 : 0) != 0;
}

void Worker::synchronize() {
  for (const bench::Stream& stream : streams_) SHUNT_DRIVER(cuStreamSynchronize(stream.get()));
}

// ---- communicators and graphs
// ----------------------------------------------------------------------

void Worker::make_communicators() {
  phase("make the communicators");
  for (uint32_t c = 0; c < kCommunicators; ++c) {
    if (c > 0 && all_.below(2) == 0) {
      SHUNT_NCCL(ncclCommSplit(communicators_[0], 0, static_cast<int>(rank_), &communicators_[c],
                               nullptr));
    } else {
      const ncclUniqueId id = bench::exchange_id(channel_, {rank_});
      SHUNT_NCCL(ncclCommInitRank(&communicators_[c], static_cast<int>(settings_.ranks), id,
                                  static_cast<int>(rank_)));
    }
    ++counts_.communicators;
  }
}

void Worker::destroy_communicators() {
  phase("destroy the communicators");
  const uint32_t first = all_.below(kCommunicators);
  for (uint32_t i = 0; i < kCommunicators; ++i) {
    SHUNT_NCCL(ncclCommDestroy(communicators_[(first + i) % kCommunicators]));
  }
}

void Worker::forget_graphs() {
  for (Captured& captured : captured_) {
    captured.graph = {};
    captured.item = {};
  }
}

void Worker::renew() {
  synchronize();
  forget_graphs();
  pause();
  destroy_communicators();
  make_communicators();
  inputs_->draw_alignment(own_);
  report_memory();
  for (uint32_t g = 0; g < kGraphs; ++g) capture(g);
  renewed_at_ = counts_.calls();
}

void Worker::capture(uint32_t which) {
  phase("capture graph " + std::to_string(which));
  synchronize();  // what it replaces may be in use
  Captured& captured = captured_[which];
  captured.graph = {};
  captured.item = {};
  const uint32_t calls = 1 + settings_.graph_calls / 2 + all_.below(settings_.graph_calls);
  captured.item =
      std::make_unique<Item>("graph " + std::to_string(which),
                             draw_calls(settings_, types_, calls, kGraphBytes, true, all_, own_),
                             *inputs_, captured.arena);
  const Item& item = *captured.item;
  CUgraph graph = nullptr;
  SHUNT_DRIVER(cuStreamBeginCapture(streams_[0].get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  item.copy_inputs(streams_[0].get());
  fork();
  enqueue(item);
  join();
  SHUNT_DRIVER(cuStreamEndCapture(streams_[0].get(), &graph));
  captured.graph = bench::instantiate(bench::Graph(graph));
  ++counts_.graphs;
}

// ---- calls
// --------------------------------------------------------------------------------------------

void Worker::fork() {
  SHUNT_DRIVER(cuEventRecord(fork_.get(), streams_[0].get()));
  for (uint32_t s = 1; s < kStreams; ++s)
    SHUNT_DRIVER(cuStreamWaitEvent(streams_[s].get(), fork_.get(), 0));
}

void Worker::join() {
  for (uint32_t s = 1; s < kStreams; ++s) {
    SHUNT_DRIVER(cuEventRecord(joins_[s].get(), streams_[s].get()));
    SHUNT_DRIVER(cuStreamWaitEvent(streams_[0].get(), joins_[s].get(), 0));
  }
}

void Worker::enqueue(const Item& item) {
  uint32_t group = 0;
  for (size_t i = 0; i < item.draws().size(); ++i) {
    const Draw& draw = item.draws()[i];
    if (draw.group != group) {
      if (group != 0) SHUNT_NCCL(ncclGroupEnd());
      if (draw.group != 0) SHUNT_NCCL(ncclGroupStart());
      group = draw.group;
    }
    SHUNT_NCCL(ncclAllReduce(item.input(i), item.output(i), draw.count,
                             static_cast<ncclDataType_t>(draw.type),
                             static_cast<ncclRedOp_t>(draw.op), communicators_[draw.communicator],
                             reinterpret_cast<cudaStream_t>(streams_[draw.stream].get())));
    ++(draw.up_to_cap ? counts_.asked_up_to_cap : counts_.asked_above_cap);
  }
  if (group != 0) SHUNT_NCCL(ncclGroupEnd());
}

void Worker::count(const Item& item, bool replayed) {
  for (const Draw& draw : item.draws()) {
    ++(replayed ? counts_.replayed : draw.group != 0 ? counts_.grouped : counts_.eager);
    ++(draw.up_to_cap ? counts_.up_to_cap : counts_.above_cap);
  }
}

void Worker::pause() {
  if (own_.below(16) == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_.below(500)));
}

// Replays and eager calls one behind the other, without a wait of the host; then everything is
// checked.
void Worker::round() {
  ++counts_.rounds;
  phase("round " + std::to_string(counts_.rounds));
  if (all_.below(32) == 0) capture(all_.below(kGraphs));
  const CUstream stream = streams_[0].get();
  window_ = 16 * uint64_t{all_.below(inputs_->windows())};
  inputs_->load(stream, window_);

  std::vector<const Item*> items;
  std::vector<std::unique_ptr<Item>> eager;
  const auto poison = static_cast<unsigned char>(all_.next());
  const uint32_t first_graph = all_.below(kGraphs), graphs = 1 + all_.below(kEager);
  for (uint32_t i = 0; i < graphs; ++i) {
    pause();
    Captured& captured = captured_[(first_graph + i) % kGraphs];
    captured.item->poison(stream, poison);
    SHUNT_DRIVER(cuGraphLaunch(captured.graph.get(), stream));
    count(*captured.item, true);
    items.push_back(captured.item.get());
    if (all_.below(3) != 0) continue;
    const uint32_t calls = 1 + all_.below(settings_.eager_calls);
    eager.push_back(
        std::make_unique<Item>("eager " + std::to_string(i),
                               draw_calls(settings_, types_, calls, kEagerBytes, false, all_, own_),
                               *inputs_, eager_[eager.size()]));
    Item& item = *eager.back();
    item.poison(stream, poison);
    item.copy_inputs(stream);
    fork();
    enqueue(item);
    join();
    count(item, false);
    items.push_back(&item);
  }
  check(items);
}

void Worker::check(const std::vector<const Item*>& items) {
  for (const Item* item : items) item->fetch(streams_[0].get());
  synchronize();
  for (const Item* item : items) {
    counts_.wrong += item->check(*data_, window_, [&](const std::string& what) {
      if (wrong_told_++ >= kWrongTold) return;
      channel_.send(bench::Fields("wrong")
                        .set("rank", uint64_t{rank_})
                        .set("text", "round " + std::to_string(counts_.rounds) + ", " + what));
    });
  }
  constexpr std::chrono::seconds kEvery{5};
  if (rank_ != 0 || std::chrono::steady_clock::now() - told_ < kEvery) return;
  told_ = std::chrono::steady_clock::now();
  report("progress");
}

// ---- reports
// ------------------------------------------------------------------------------------------

void Worker::report_memory() {
  size_t free = 0, total = 0;
  SHUNT_DRIVER(cuCtxSynchronize());
  SHUNT_DRIVER(cuMemGetInfo(&free, &total));
  channel_.send(bench::Fields("memory")
                    .set("rank", uint64_t{rank_})
                    .set("device", uint64_t{total - free})
                    .set("host", resident_bytes())
                    .set("descriptors", open_descriptors()));
}

void Worker::report(const char* kind) {
  channel_.send(bench::Fields(kind)
                    .set("rank", uint64_t{rank_})
                    .set("seconds", elapsed())
                    .set("calls", counts_.calls())
                    .set("eager", counts_.eager)
                    .set("grouped", counts_.grouped)
                    .set("replayed", counts_.replayed)
                    .set("up_to_cap", counts_.up_to_cap)
                    .set("above_cap", counts_.above_cap)
                    .set("asked_up_to_cap", counts_.asked_up_to_cap)
                    .set("asked_above_cap", counts_.asked_above_cap)
                    .set("graphs", counts_.graphs)
                    .set("communicators", counts_.communicators)
                    .set("rounds", counts_.rounds)
                    .set("wrong", counts_.wrong));
}

}  // namespace shunt::soak
