#include "hostile.h"

#include <algorithm>

namespace emu {
namespace {

size_t hash(uintptr_t address) { return (address >> 2) * 0x9e3779b97f4a7c15ull >> 20; }

// Mostly soon, sometimes long after everything around it.
uint64_t delay(Random& random) {
  const uint32_t kind = random.below(10);
  if (kind < 5) return 1 + random.below(2);
  return 1 + random.below(kind < 9 ? 16 : 120);
}

}  // namespace

PendingStores::PendingStores(uint64_t seed) : random_(seed), cells_(512) {}

uint32_t& PendingStores::near(uintptr_t address) {
  return near_[((address >> 4) * 0x9e3779b97f4a7c15ull >> 32) % near_.size()];
}

PendingStores::Cell& PendingStores::cell(uintptr_t address) {
  const size_t mask = cells_.size() - 1;
  size_t at = hash(address) & mask;
  while (cells_[at].address != address && cells_[at].address != 0) at = (at + 1) & mask;
  return cells_[at];
}

void PendingStores::grow() {
  std::vector<Cell> old(cells_.size() * 2);
  old.swap(cells_);
  used_ = 0;
  for (const Cell& c : old) {
    if (c.count == 0) continue;
    cell(c.address) = c;
    ++used_;
  }
}

void PendingStores::add(uintptr_t address, uint64_t value, bool wide, const Writer& writer) {
  if (used_ + 2 > cells_.size() / 2) grow();
  uint64_t due = now_ + delay(random_);
  for (int half = 0; half < (wide ? 2 : 1); ++half) {
    const Cell& c = cell(address + 4u * static_cast<unsigned>(half));
    if (c.count > 0) due = std::max(due, c.due + 1);  // the order of one address holds
  }
  while (due >= now_ + kHorizon) tick();
  for (int half = 0; half < (wide ? 2 : 1); ++half) {
    Cell& c = cell(address + 4u * static_cast<unsigned>(half));
    if (c.address == 0) {
      c.address = address + 4u * static_cast<unsigned>(half);
      ++used_;
    }
    ++c.count;
    c.due = due;
    c.value = static_cast<uint32_t>(value >> (32 * half));
    c.writer = writer;
  }
  due_[due % kHorizon].push_back({address, value, wide});
  ++near(address);
  ++waiting_;
}

void PendingStores::store(void* address, Packet packet, shunt::host::Grain grain,
                          const Writer& writer) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (grain == shunt::host::Grain::k8) {
    add(at, packet.low, true, writer);
    add(at + 8, packet.high, true, writer);
    return;
  }
  add(at, packet.low & 0xffffffffu, false, writer);
  add(at + 4, packet.low >> 32, false, writer);
  add(at + 8, packet.high & 0xffffffffu, false, writer);
  add(at + 12, packet.high >> 32, false, writer);
}

uint32_t PendingStores::overlay(uintptr_t address, uint32_t in_memory, const Writer& reader) {
  const Cell& c = cell(address);
  if (c.count == 0) return in_memory;
  const bool visible = c.writer.thread == reader.thread ||
                       (c.writer.block == reader.block && c.writer.barriers < reader.barriers);
  return visible ? c.value : in_memory;
}

Packet PendingStores::load(const void* address, const Writer& reader) {
  const Packet memory = load_at_once(address);
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (near(at) == 0) return memory;
  const auto word = [&](uint64_t value, uintptr_t base) {
    return overlay(base, static_cast<uint32_t>(value), reader) |
           uint64_t{overlay(base + 4, static_cast<uint32_t>(value >> 32), reader)} << 32;
  };
  return {word(memory.low, at), word(memory.high, at + 8)};
}

void PendingStores::deliver(const Word& word) {
  if (word.wide) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word.address), word.value, __ATOMIC_RELAXED);
    --cell(word.address + 4).count;
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(word.address), static_cast<uint32_t>(word.value),
                     __ATOMIC_RELAXED);
  }
  --cell(word.address).count;
  --near(word.address);
  --waiting_;
}

void PendingStores::tick() {
  ++now_;
  std::vector<Word>& arriving = due_[now_ % kHorizon];
  for (size_t i = arriving.size(); i > 1; --i) {
    std::swap(arriving[i - 1], arriving[random_.below(i)]);
  }
  for (const Word& word : arriving) deliver(word);
  arriving.clear();
}

void PendingStores::deliver_all() {
  while (!empty()) tick();
}

}  // namespace emu
