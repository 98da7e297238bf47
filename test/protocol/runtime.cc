// The functions that the kernel asks of its host (kernels/host_runtime.h), on the running machine.
#include "kernels/host_runtime.h"
#include "test/protocol/machine.h"

namespace sim {

void Machine::access() {
  if (preempt_.tick(rng_)) current_->coroutine.leave();
}

void Machine::out_of_bounds(const void* address) {
  fail(Failure::kStray, "access outside the slabs: " + host_.describe(address));
}

void Machine::store_packet(void* address, uint64_t low, uint64_t high, uint32_t grain) {
  access();
  if (!memory_.contains(address, 16)) out_of_bounds(address);
  Kernel& kernel = *current_->kernel;
  if (!kernel.launch.may_store) {
    fail(Failure::kStoreAfterStop, "rank " + std::to_string(kernel.rank) +
                                       " had stopped, yet stores to " + host_.describe(address));
  }
  memory_.store_packet(kernel.outstanding, current_->serial, address, low, high, grain);
}

void Machine::load_packet(const void* address, uint64_t* low, uint64_t* high) {
  access();
  if (!memory_.contains(address, 16)) out_of_bounds(address);
  ++current_->loads;
  current_->packet = memory_.packet_of(address);
  memory_.load_packet(current_->serial, current_->packet, current_->seen);
  *low = current_->seen[0];
  *high = current_->seen[1];
}

uint32_t Machine::load_word(const uint32_t* address) {
  access();
  return memory_.load_word(current_->serial, address);
}

void Machine::store_word(uint32_t* address, uint32_t value) {
  access();
  memory_.store_word(current_->kernel->outstanding, current_->serial, address, value);
}

// Atomic where the memory is: the thread's own stores come first.
uint32_t Machine::exchange_word(uint32_t* address, uint32_t value) {
  access();
  memory_.flush_thread(current_->kernel->outstanding, current_->serial);
  const uint32_t before = *address;
  *address = value;
  return before;
}

uint32_t Machine::add_word(uint32_t* address, uint32_t value) {
  access();
  memory_.flush_thread(current_->kernel->outstanding, current_->serial);
  const uint32_t before = *address;
  *address = before + value;
  return before;
}

int Machine::barrier_or(int predicate) {
  Fiber& fiber = *current_;
  Block& block = fiber.kernel->blocks[fiber.block];
  block.predicate |= predicate;
  if (block.at_barrier.size() + 1 < fiber.kernel->launch.threads) {
    fiber.state = State::kAtBarrier;
    block.at_barrier.push_back(&fiber);
    fiber.coroutine.leave();
    return fiber.barrier_result;
  }
  const int result = block.predicate;
  for (Fiber* other : block.at_barrier) {
    other->barrier_result = result;
    make_ready(*other);
  }
  block.at_barrier.clear();
  block.predicate = 0;
  return result;
}

// Parks a thread whose poll is useless until the packet changes: so a run in which nothing can move
// is seen at once, and thousands of waiting threads cost nothing. The last load need not be the
// poll (a kernel loads several peers' packets ahead), so only a second poll that saw the same as
// the first counts.
void Machine::pause() {
  Fiber& fiber = *current_;
  const bool again = fiber.loads == 1 && fiber.packet == fiber.polled &&
                     std::memcmp(fiber.seen, fiber.polled_seen, sizeof(fiber.seen)) == 0;
  fiber.loads = 0;
  fiber.polled = fiber.packet;
  std::memcpy(fiber.polled_seen, fiber.seen, sizeof(fiber.seen));
  if (again && !ranks_[fiber.kernel->rank].spinning && !spin_.tick(rng_)) {
    fiber.state = State::kParked;
    fiber.next_parked = parked_[fiber.packet];
    parked_[fiber.packet] = &fiber;
    memory_.watch(fiber.packet);
  }
  fiber.coroutine.leave();
}

void Machine::trap() {
  current_->state = State::kTrapped;
  for (;;) current_->coroutine.leave();
}

}  // namespace sim

namespace shunt::host {

ThreadIndex thread_index() {
  const auto& fiber = sim::Machine::running().current();
  return {fiber.thread, fiber.block, fiber.kernel->launch.threads};
}
void store_packet(void* address, uint64_t low, uint64_t high, Grain grain, bool /*remote*/) {
  sim::Machine::running().store_packet(address, low, high, static_cast<uint32_t>(grain));
}
void load_packet(const void* address, uint64_t* low, uint64_t* high) {
  sim::Machine::running().load_packet(address, low, high);
}
uint32_t load_word(const uint32_t* address) { return sim::Machine::running().load_word(address); }
void store_word(uint32_t* address, uint32_t value) {
  sim::Machine::running().store_word(address, value);
}
uint32_t exchange_word(uint32_t* address, uint32_t value) {
  return sim::Machine::running().exchange_word(address, value);
}
uint32_t add_word(uint32_t* address, uint32_t value) {
  return sim::Machine::running().add_word(address, value);
}
int barrier_or(int predicate) { return sim::Machine::running().barrier_or(predicate); }
uint32_t broadcast(uint32_t value, uint32_t from) {
  return static_cast<uint32_t>(
      sim::Machine::running().barrier_or(host::thread_index().thread == from ? static_cast<int>(value) : 0));
}
void pause() { sim::Machine::running().pause(); }
uint64_t clock_ns() { return sim::Machine::running().clock_ns(); }
void trap() { sim::Machine::running().trap(); }

}  // namespace shunt::host
