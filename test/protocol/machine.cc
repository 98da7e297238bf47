#include "test/protocol/machine.h"

#include <algorithm>

namespace sim {
namespace {

constexpr uint64_t kMostTurns = 30'000'000;  // of one run: more is a hang

template <typename T>
T take_random(std::vector<T>& from, Rng& rng) {
  const uint32_t i = rng.below(from.size());
  T taken = from[i];
  from[i] = from.back();
  from.pop_back();
  return taken;
}

}  // namespace

Machine* Machine::running_ = nullptr;

const char* name_of(Failure failure) {
  constexpr const char* kNames[] = {"none", "wrong-sum", "hang",      "store-after-stop",
                                    "trap", "stray",     "unreported"};
  return kNames[static_cast<uint32_t>(failure)];
}

Machine::Machine(size_t memory_bytes, std::vector<uint32_t> rank_of, uint64_t seed, Host& host)
    : host_(host),
      rng_(seed),
      hostility_(draw_hostility(rng_)),
      memory_(memory_bytes, hostility_, rng_, *this),
      ranks_(*std::max_element(rank_of.begin(), rank_of.end()) + 1),
      parked_(memory_.packets(), nullptr),
      preempt_(hostility_.preempt),
      stall_(hostility_.stall),
      close_block_(hostility_.close_block),
      close_rank_(hostility_.close_rank),
      spin_(hostility_.spin),
      streams_left_(static_cast<uint32_t>(rank_of.size())) {
  for (uint32_t i = 0; i < kEvents; ++i) event_[i] = Rate(hostility_.period[i]);
  for (uint32_t rank : rank_of) streams_.push_back({rank, Stage::kIdle, {}});
  running_ = this;
}

Machine::~Machine() { running_ = nullptr; }

void Machine::run() {
  while (failure_ == Failure::kNone && streams_left_ != 0) {
    host_.tick(++turn_);
    events();
    if (!ready_.empty()) {
      turn_of_a_thread();
    } else if (!something_happens() && streams_left_ != 0 && !host_.stuck()) {
      fail(Failure::kHang, "nothing can move\n" + dump());
    }
    if (turn_ > kMostTurns) fail(Failure::kHang, "turns without end\n" + dump());
  }
}

void Machine::fail(Failure failure, const std::string& text) {
  if (failure_ == Failure::kNone) {
    failure_ = failure;
    text_ = text;
  }
  while (current_ != nullptr) current_->coroutine.leave();
}

// ---- threads
// -------------------------------------------------------------------------------------------

void Machine::turn_of_a_thread() {
  Fiber& fiber = *take_random(ready_, rng_);
  if (stalls(fiber)) return;
  current_ = &fiber;
  fiber.coroutine.resume();
  current_ = nullptr;
  if (failure_ == Failure::kNone) settle(fiber);
}

bool Machine::stalls(Fiber& fiber) {
  Rank& rank = ranks_[fiber.kernel->rank];
  Gate& block = fiber.kernel->blocks[fiber.block].gate;
  if (close_rank_.tick(rng_) && !rank.gate.closed) close(rank.gate);
  if (close_block_.tick(rng_) && !block.closed) close(block);
  if (rank.gate.closed || block.closed) {
    fiber.state = State::kGated;
    (block.closed ? block : rank.gate).waiting.push_back(&fiber);
    return true;
  }
  if (!stall_.tick(rng_)) return false;
  fiber.state = State::kAsleep;
  asleep_.push_back(&fiber);
  return true;
}

void Machine::settle(Fiber& fiber) {
  switch (fiber.state) {
    case State::kReady:
      ready_.push_back(&fiber);
      break;
    case State::kDone:
      if (--fiber.kernel->live == 0) {
        Kernel& kernel = *fiber.kernel;
        idle_fibers_.insert(idle_fibers_.end(), kernel.fibers.begin(), kernel.fibers.end());
        kernel.fibers.clear();
        streams_[kernel.stream].stage = Stage::kDraining;
      }
      break;
    case State::kTrapped:
      kill(fiber);
      break;
    default:  // already in some list
      break;
  }
}

void Machine::make_ready(Fiber& fiber) {
  fiber.state = State::kReady;
  ready_.push_back(&fiber);
}

void Machine::changed(uint32_t packet) {
  Fiber* fiber = parked_[packet];
  parked_[packet] = nullptr;
  while (fiber != nullptr) {
    Fiber* next = fiber->next_parked;
    make_ready(*fiber);
    fiber = next;
  }
}

void Machine::unpark(Fiber& fiber) {
  Fiber** link = &parked_[fiber.packet];
  while (*link != &fiber) link = &(*link)->next_parked;
  *link = fiber.next_parked;
}

void Machine::spin(uint32_t rank) {
  ranks_[rank].spinning = true;
  for (Stream& stream : streams_) {
    if (stream.rank != rank) continue;
    for (Fiber* fiber : stream.kernel.fibers) {
      if (fiber->state != State::kParked) continue;
      unpark(*fiber);
      make_ready(*fiber);
    }
  }
}

bool Machine::waits(uint32_t rank) const {
  for (const Stream& stream : streams_) {
    for (const Fiber* fiber : stream.kernel.fibers) {
      if (stream.rank == rank && fiber->state == State::kParked) return true;
    }
  }
  return false;
}

void Machine::freeze(uint32_t rank, bool frozen) {
  Rank& r = ranks_[rank];
  if (r.frozen == frozen || r.dead) return;
  r.frozen = frozen;
  if (frozen) {
    closed_.erase(std::remove(closed_.begin(), closed_.end(), &r.gate), closed_.end());
    r.gate.closed = true;
  } else {
    open(r.gate);
  }
}

// ---- events
// --------------------------------------------------------------------------------------------

void Machine::events() {
  for (uint32_t i = 0; i < kEvents; ++i) {
    if (event_[i].tick(rng_)) happens(static_cast<Event>(i));
  }
}

bool Machine::happens(Event event) {
  switch (event) {
    case Event::kLand:
      return memory_.land_one();
    case Event::kRelease:
      return memory_.release_one();
    case Event::kStream:
      return advance_a_stream();
    case Event::kOpen:
      if (closed_.empty()) return false;
      open(*take_random(closed_, rng_));
      return true;
    case Event::kWake:
      if (asleep_.empty()) return false;
      make_ready(*take_random(asleep_, rng_));
      return true;
  }
  return false;
}

bool Machine::something_happens() {
  for (bool any : {rng_.of256(32), false}) {
    const uint32_t first = any ? rng_.below(kEvents) : 0;
    for (uint32_t i = first; i < kEvents; ++i) {
      if (happens(hostility_.order[i])) return true;
    }
  }
  return false;
}

void Machine::close(Gate& gate) {
  gate.closed = true;
  closed_.push_back(&gate);
}

void Machine::open(Gate& gate) {
  gate.closed = false;
  for (Fiber* fiber : gate.waiting) make_ready(*fiber);
  gate.waiting.clear();
}

// ---- streams
// -------------------------------------------------------------------------------------------

bool Machine::advance_a_stream() {
  const uint32_t count = static_cast<uint32_t>(streams_.size());
  const uint32_t first = rng_.below(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (advance(streams_[(first + i) % count])) return true;
  }
  return false;
}

bool Machine::advance(Stream& stream) {
  const Rank& rank = ranks_[stream.rank];
  if (rank.gate.closed || rank.dead) return false;
  const uint32_t index = static_cast<uint32_t>(&stream - streams_.data());
  if (stream.stage == Stage::kDraining) {
    memory_.flush(stream.kernel.outstanding);
    stream.stage = Stage::kIdle;
    host_.ended(index);
    return true;
  }
  if (stream.stage != Stage::kIdle) return false;
  if (host_.next(index, stream.kernel.launch)) {
    start(stream);
  } else {
    stream.stage = Stage::kDone;
    --streams_left_;
  }
  return true;
}

Machine::Fiber& Machine::new_fiber() {
  if (idle_fibers_.empty()) {
    return all_fibers_.emplace_back(static_cast<uint32_t>(all_fibers_.size()));
  }
  Fiber& fiber = *idle_fibers_.back();
  idle_fibers_.pop_back();
  return fiber;
}

void Machine::start(Stream& stream) {
  Kernel& kernel = stream.kernel;
  stream.stage = Stage::kRunning;
  kernel.stream = static_cast<uint32_t>(&stream - streams_.data());
  kernel.rank = stream.rank;
  kernel.blocks.resize(kernel.launch.blocks);
  for (Block& block : kernel.blocks) block = {};
  kernel.live = kernel.launch.blocks * kernel.launch.threads;
  for (uint32_t i = 0; i < kernel.live; ++i) {
    Fiber& fiber = new_fiber();
    fiber.kernel = &kernel;
    fiber.block = i / kernel.launch.threads;
    fiber.thread = i % kernel.launch.threads;
    fiber.serial = ++serial_;
    fiber.polled = kNobody;
    fiber.coroutine.start(
        [](void* argument) {
          auto& self = *static_cast<Fiber*>(argument);
          self.kernel->launch.body(self.kernel->launch.params);
          self.state = State::kDone;
        },
        &fiber);
    kernel.fibers.push_back(&fiber);
    if (rng_.of256(hostility_.late_start)) {
      fiber.state = State::kAsleep;
      asleep_.push_back(&fiber);
    } else {
      make_ready(fiber);
    }
  }
}

// A trap ends all of the rank. What its threads had stored may land or not.
void Machine::kill(Fiber& culprit) {
  const uint32_t rank = culprit.kernel->rank;
  memory_.flush_thread(culprit.kernel->outstanding, culprit.serial);
  const auto of_rank = [&](Fiber* fiber) { return fiber->kernel->rank == rank; };
  ready_.erase(std::remove_if(ready_.begin(), ready_.end(), of_rank), ready_.end());
  asleep_.erase(std::remove_if(asleep_.begin(), asleep_.end(), of_rank), asleep_.end());
  closed_.erase(std::remove(closed_.begin(), closed_.end(), &ranks_[rank].gate), closed_.end());
  ranks_[rank].dead = true;
  ranks_[rank].gate.waiting.clear();
  for (Stream& stream : streams_) {
    if (stream.rank != rank || stream.stage == Stage::kDone) continue;
    for (Block& block : stream.kernel.blocks) {
      closed_.erase(std::remove(closed_.begin(), closed_.end(), &block.gate), closed_.end());
    }
    for (Fiber* fiber : stream.kernel.fibers) {
      if (fiber->state == State::kParked) unpark(*fiber);
      idle_fibers_.push_back(fiber);
    }
    stream.kernel.fibers.clear();
    memory_.abandon(stream.kernel.outstanding);
    stream.stage = Stage::kDone;
    --streams_left_;
  }
  host_.trapped(rank);
}

std::string Machine::dump() const {
  constexpr const char* kStates[] = {"ready",      "asleep", "gated",  "parked",
                                     "at barrier", "done",   "trapped"};
  constexpr const char* kStages[] = {"idle", "running", "draining", "done"};
  std::string out;
  for (const Stream& stream : streams_) {
    uint32_t counts[7] = {};
    std::string example;
    for (const Fiber* fiber : stream.kernel.fibers) {
      ++counts[static_cast<uint32_t>(fiber->state)];
      if (fiber->state != State::kParked || !example.empty()) continue;
      auto* address = const_cast<Memory&>(memory_).base() + size_t{fiber->packet} * 16;
      example = "; block " + std::to_string(fiber->block) + " thread " +
                std::to_string(fiber->thread) + " waits for " + host_.describe(address);
    }
    out += "  rank " + std::to_string(stream.rank) + " stream " +
           std::to_string(&stream - streams_.data()) + ": " +
           kStages[static_cast<uint32_t>(stream.stage)];
    for (uint32_t i = 0; i < 7; ++i) {
      if (counts[i] != 0) out += ", " + std::to_string(counts[i]) + " " + kStates[i];
    }
    out += example + "\n";
  }
  return out + "  " + std::to_string(memory_.late_words()) + " words in flight, turn " +
         std::to_string(turn_) + "\n";
}

}  // namespace sim
