#include "kernel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "context.h"
#include "kernels/protocol.h"
#include "memory.h"
#include "report.h"
#include "settings.h"

namespace emu {
namespace {

thread_local KernelRun* current_run = nullptr;
std::atomic<uint64_t> launches{0};

constexpr uint32_t kYields = 16;      // fruitless sweeps that only give up the core
constexpr uint32_t kFirstNapUs = 10;  // then naps, each half as long again
constexpr uint32_t kLongestNapUs = 200;

}  // namespace

KernelRun::KernelRun(const Launch& launch, const RunInfo& info)
    : launch_(launch),
      info_(info),
      faults_(launch, info, launches.fetch_add(1)),
      stacks_(size_t{launch.blocks} * launch.threads),
      blocks_(launch.blocks, Block{launch.threads}),
      live_(launch.blocks * launch.threads) {
  threads_.reserve(live_);
  for (uint32_t block = 0; block < launch.blocks; ++block) {
    for (uint32_t index = 0; index < launch.threads; ++index) {
      order_.push_back(static_cast<uint32_t>(threads_.size()));
      threads_.push_back({Fiber(stacks_.top(threads_.size()), fiber_main), index, block});
    }
  }
  if (settings().hostile != 0) {
    pending_ = std::make_unique<PendingStores>(settings().hostile + launches * 8 +
                                               static_cast<uint64_t>(info.context.gpu));
  }
}

KernelRun& KernelRun::current() { return *current_run; }

CUresult KernelRun::run() {
  check_buffers();
  current_run = this;
  while (live_ > 0 && info_.context.sticky() == CUDA_SUCCESS && !exiting()) {
    progress_ = false;
    sweep();
    if (pending_) pending_->tick();
    rest();
  }
  current_run = nullptr;
  if (pending_) pending_->deliver_all();
  return info_.context.sticky();
}

void KernelRun::sweep() {
  if (order_.size() > live_) {
    std::erase_if(order_, [&](uint32_t number) { return threads_[number].state == State::kDone; });
  }
  if (pending_) shuffle_and_stall();
  for (uint32_t number : order_) {
    Thread& next = threads_[number];
    if (next.state != State::kReady) continue;
    if (next.stalled > 0) {
      --next.stalled;
      continue;
    }
    running_ = number;
    next.fiber.resume(this);
    if (info_.context.sticky() != CUDA_SUCCESS) return;
  }
}

void KernelRun::shuffle_and_stall() {
  Random& random = pending_->random();
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
  if (random.below(8) == 0) threads_[order_.front()].stalled = random.below(40);
  if (random.below(64) == 0) {
    const uint32_t block = static_cast<uint32_t>(random.below(blocks_.size()));
    const uint32_t sweeps = static_cast<uint32_t>(random.below(60));
    for (Thread& t : threads_) {
      if (t.block == block) t.stalled = sweeps;
    }
  }
}

// Whoever waits for another process must not keep it from running: there are fewer cores than
// ranks.
void KernelRun::rest() {
  if (pending_ && !pending_->empty()) return let_peers_look();
  if (progress_ || live_ == 0) {
    fruitless_ = 0;
    return;
  }
  if (++fruitless_ <= kYields) {
    sched_yield();
    return;
  }
  uint32_t nap = kFirstNapUs;
  for (uint32_t i = kYields; i < fruitless_ && nap < kLongestNapUs; ++i) nap += nap / 2;
  usleep(std::min(nap, kLongestNapUs));
}

// Ranks share cores: without this every delay would pass within one time slice, and no peer would
// ever see what lies between the words of a packet.
void KernelRun::let_peers_look() {
  const uint32_t choice = pending_->random().below(64);
  if (choice < 8) sched_yield();
  if (choice == 8) usleep(50);
}

void KernelRun::fiber_main(boost::context::detail::transfer_t from) {
  KernelRun& run = *static_cast<KernelRun*>(from.data);
  run.scheduler_ = from.fctx;
  run.launch_.kernel->body(run.launch_.params.data());
  run.finish_thread();
  for (;;) run.switch_out();
}

void KernelRun::switch_out() {
  scheduler_ = boost::context::detail::jump_fcontext(scheduler_, nullptr).fctx;
}

void KernelRun::finish_thread() {
  progress_ = true;
  thread().state = State::kDone;
  --live_;
  Block& block = blocks_[thread().block];
  --block.live;
  if (block.live > 0 && block.arrived == block.live) release_barrier(block);
}

void KernelRun::release_barrier(Block& block) {
  block.outcome = block.vote;
  block.vote = 0;
  block.arrived = 0;
  ++block.barriers;
  const uint32_t number = static_cast<uint32_t>(&block - blocks_.data());
  Thread* first = &threads_[size_t{number} * launch_.threads];
  for (Thread* t = first; t != first + launch_.threads; ++t) {
    if (t->state == State::kAtBarrier) t->state = State::kReady;
  }
}

int KernelRun::barrier_or(int predicate) {
  progress_ = true;
  Block& block = blocks_[thread().block];
  block.vote |= predicate != 0;
  if (++block.arrived == block.live) {
    release_barrier(block);
  } else {
    thread().state = State::kAtBarrier;
    switch_out();
  }
  return block.outcome;
}

uint32_t KernelRun::broadcast(uint32_t value, uint32_t from) {
  Block& block = blocks_[thread().block];
  if (thread().index == from) block.word = value;
  barrier_or(0);
  return block.word;
}

void KernelRun::pause() { switch_out(); }

void KernelRun::fault(CUresult code) {
  info_.context.fault(code);
  for (;;) switch_out();
}

shunt::host::ThreadIndex KernelRun::index() const {
  return {thread().index, thread().block, launch_.threads};
}

Writer KernelRun::writer() const {
  return {running_, thread().block, blocks_[thread().block].barriers};
}

// Whose memory this is; a fault, as on a GPU, if this context may not touch it.
int KernelRun::gpu_of(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Granted& granted : granted_) {
    if (at >= granted.begin && at < granted.end) return granted.gpu;
  }
  const std::optional<Region> region = address_map().find(address);
  if (!region || !region->contains(address, sizeof(Packet)) || !may_touch(info_.context, *region)) {
    note_misuse("%s on GPU %d touches %p, which is %s", launch_.kernel->name, info_.context.gpu,
                address, region ? "not its to touch" : "in no allocation");
    fault(CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  granted_.push_back({region->base, region->base + region->bytes, region->gpu});
  return region->gpu;
}

void KernelRun::store_packet(void* address, Packet packet, shunt::host::Grain grain) {
  progress_ = true;
  const int gpu = gpu_of(address);
  if (faults_.any() && !faults_.apply(address, gpu, &packet)) return;
  if (pending_) {
    pending_->store(address, packet, grain, writer());
  } else {
    store_at_once(address, packet);
  }
}

Packet KernelRun::load_packet(const void* address) {
  gpu_of(address);
  if (!pending_) return load_at_once(address);
  const Packet packet = pending_->load(address, writer());
  if (pending_->random().below(64) != 0) return packet;
  pause();  // the halves of one load may see different moments
  return {packet.low, pending_->load(address, writer()).high};
}

// The user's buffers are read and written without host_runtime.h, so they are looked at beforehand.
void KernelRun::check_buffers() const {
  if (launch_.params.size() != sizeof(shunt::AllReduceParams)) return;
  shunt::AllReduceParams params;
  std::memcpy(&params, launch_.params.data(), sizeof(params));
  const size_t bytes = params.bytes;
  for (const void* buffer : {params.send, static_cast<const void*>(params.recv)}) {
    const std::optional<Region> region = address_map().find(buffer);
    if (bytes == 0 ||
        (region && region->contains(buffer, bytes) && may_touch(info_.context, *region))) {
      continue;
    }
    note_misuse("%s on GPU %d: %zu bytes at %p are not its to touch (freed?)", launch_.kernel->name,
                info_.context.gpu, bytes, buffer);
    info_.context.fault(CUDA_ERROR_ILLEGAL_ADDRESS);
  }
}

CUresult run_kernel(const Launch& launch, const RunInfo& info) {
  for (const KernelDelay& delay : settings().delays) {
    if (delay.gpu >= 0 && delay.gpu != info.context.gpu) continue;
    static thread_local std::minstd_rand random(static_cast<unsigned>(getpid()));
    usleep(static_cast<useconds_t>(random() % (delay.at_most_us + 1)));
  }
  ++info.context.kernels;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  try {
    result = KernelRun(launch, info).run();
  } catch (const std::bad_alloc&) {
    info.context.fault(result);
  }
  --info.context.kernels;
  return result;
}

}  // namespace emu
