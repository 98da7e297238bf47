#include "test/protocol/memory.h"

namespace sim {

Memory::Memory(size_t bytes, const Hostility& hostility, Rng& rng, Listener& listener)
    : hostility_(hostility),
      rng_(rng),
      listener_(listener),
      storage_((bytes + sizeof(Line) - 1) / sizeof(Line)),
      bytes_{reinterpret_cast<unsigned char*>(storage_.data()), storage_.size() * sizeof(Line)},
      newest_(bytes_.size / 16, kNobody),
      watched_(bytes_.size / 16, 0) {}

bool Memory::contains(const void* address, size_t size) const {
  const auto* p = static_cast<const unsigned char*>(address);
  return p >= bytes_.begin && p + size <= bytes_.begin + bytes_.size;
}

uint32_t Memory::packet_of(const void* address) const {
  return static_cast<uint32_t>((static_cast<const unsigned char*>(address) - bytes_.begin) / 16);
}

void Memory::store_packet(Outstanding& kernel, uint32_t thread, void* address, uint64_t low,
                          uint64_t high, uint32_t grain) {
  const uint32_t packet = packet_of(address);
  const bool direct = rng_.of256(hostility_.direct);
  const bool lonely = !direct && rng_.of256(hostility_.lonely);
  const uint32_t words = grain / 4, pieces = 4 / words;
  const uint32_t late = rng_.below(pieces);  // if lonely
  for (uint32_t i = 0; i < pieces; ++i) {
    const uint64_t half = i * words < 2 ? low : high;
    const uint64_t value = words == 2 ? half : i % 2 == 0 ? half & 0xffffffffu : half >> 32;
    store(kernel, thread, packet, i * words, words, value, !direct && (!lonely || i == late));
  }
}

void Memory::store_word(Outstanding& kernel, uint32_t thread, uint32_t* address, uint32_t value) {
  const uint32_t word = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(address) % 16 / 4);
  store(kernel, thread, packet_of(address), word, 1, value, !rng_.of256(hostility_.direct));
}

void Memory::store(Outstanding& kernel, uint32_t thread, uint32_t packet, uint32_t first_word,
                   uint32_t words, uint64_t value, bool late) {
  // Behind an older store of this thread to this packet nothing may land at once.
  for (uint32_t i = newest_[packet]; !late && i != kNobody; i = late_[i].older_in_packet) {
    late = late_[i].thread == thread;
  }
  if (!late) return write(packet, first_word, words, value);
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(late_.size());
    late_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  const bool held = rng_.of256(hostility_.held);
  std::vector<uint32_t>& pool = held ? held_ : drifting_;
  late_[index] = {packet,
                  thread,
                  value,
                  static_cast<uint8_t>(first_word),
                  static_cast<uint8_t>(words),
                  held,
                  static_cast<uint32_t>(pool.size()),
                  newest_[packet],
                  kernel.last,
                  kNobody,
                  &kernel};
  pool.push_back(index);
  newest_[packet] = index;
  (kernel.last == kNobody ? kernel.first : late_[kernel.last].next) = index;
  kernel.last = index;
}

void Memory::write(uint32_t packet, uint32_t first_word, uint32_t words, uint64_t value) {
  std::memcpy(bytes_.begin + size_t{packet} * 16 + first_word * 4, &value, words * 4);
  if (watched_[packet]) {
    watched_[packet] = 0;
    listener_.changed(packet);
  }
}

// Lays what `thread` has stored there over `words`, the newest on top.
void Memory::overlay(uint32_t thread, uint32_t packet, uint32_t (&words)[4]) const {
  bool done[4] = {};
  for (uint32_t i = newest_[packet]; i != kNobody; i = late_[i].older_in_packet) {
    const Late& late = late_[i];
    if (late.thread != thread) continue;
    for (uint32_t w = 0; w < late.words; ++w) {
      const uint32_t at = late.first_word + w;
      if (!done[at]) words[at] = static_cast<uint32_t>(late.value >> (32 * w));
      done[at] = true;
    }
  }
}

void Memory::load_packet(uint32_t thread, uint32_t packet, uint64_t (&words)[2]) const {
  std::memcpy(words, bytes_.begin + size_t{packet} * 16, 16);
  if (newest_[packet] == kNobody) return;
  uint32_t quarters[4];
  std::memcpy(quarters, words, 16);
  overlay(thread, packet, quarters);
  std::memcpy(words, quarters, 16);
}

uint32_t Memory::load_word(uint32_t thread, const uint32_t* address) const {
  const uint32_t packet = packet_of(address);
  uint32_t words[4];
  std::memcpy(words, bytes_.begin + size_t{packet} * 16, 16);
  overlay(thread, packet, words);
  return words[reinterpret_cast<uintptr_t>(address) % 16 / 4];
}

bool Memory::land_from(std::vector<uint32_t>& pool) {
  if (pool.empty()) return false;
  land(oldest_like(pool[rng_.below(pool.size())]));
  return true;
}

// The oldest late store of the same thread to any of the same words.
uint32_t Memory::oldest_like(uint32_t index) const {
  const Late& late = late_[index];
  uint32_t oldest = index;
  for (uint32_t i = late.older_in_packet; i != kNobody; i = late_[i].older_in_packet) {
    const Late& other = late_[i];
    if (other.thread == late.thread && other.first_word < late.first_word + late.words &&
        late.first_word < other.first_word + other.words) {
      oldest = i;
    }
  }
  return oldest == index ? index : oldest_like(oldest);
}

void Memory::land(uint32_t index) {
  const Late late = late_[index];
  forget(index);
  write(late.packet, late.first_word, late.words, late.value);
}

void Memory::forget(uint32_t index) {
  Late& late = late_[index];
  uint32_t* link = &newest_[late.packet];
  while (*link != index) link = &late_[*link].older_in_packet;
  *link = late.older_in_packet;
  std::vector<uint32_t>& pool = late.held ? held_ : drifting_;
  pool[late.pool_index] = pool.back();
  late_[pool.back()].pool_index = late.pool_index;
  pool.pop_back();
  (late.previous == kNobody ? late.kernel->first : late_[late.previous].next) = late.next;
  (late.next == kNobody ? late.kernel->last : late_[late.next].previous) = late.previous;
  free_.push_back(index);
}

void Memory::flush(Outstanding& kernel) {
  while (kernel.first != kNobody) land(kernel.first);
}

void Memory::flush_thread(Outstanding& kernel, uint32_t thread) {
  for (uint32_t i = kernel.first, next; i != kNobody; i = next) {
    next = late_[i].next;
    if (late_[i].thread == thread) land(i);
  }
}

void Memory::abandon(Outstanding& kernel) {
  while (kernel.first != kNobody) {
    const uint32_t index = kernel.first;
    if (rng_.of256(128)) {
      land(index);
    } else {
      forget(index);
    }
  }
}

}  // namespace sim
