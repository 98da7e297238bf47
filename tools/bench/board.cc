#include "tools/bench/board.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace shunt::bench {

struct Board::Memory {
  struct Slot {
    std::atomic<uint32_t> waiting;
    std::atomic<uint32_t> value;  // of the party that this rank speaks for; 0 of the others
    char phase[160];
  };
  std::atomic<uint32_t> parties;
  std::atomic<uint32_t> arrived;
  std::atomic<uint32_t> generation;
  Slot slots[kMaxRanks];
};

Board::Board(FileDescriptor fd) : fd_(std::move(fd)) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free);  // shared between processes
  void* memory = mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  memory_ = static_cast<Memory*>(memory);
}

Board Board::create(uint32_t parties) {
  FileDescriptor fd(checked(memfd_create("nccl-shunt-bench", MFD_CLOEXEC), "memfd_create"));
  checked(ftruncate(fd.get(), sizeof(Memory)), "ftruncate");
  Board board(std::move(fd));
  new (board.memory_) Memory{};
  board.memory_->parties.store(parties);
  for (uint32_t rank = 0; rank < kMaxRanks; ++rank) board.set_phase(rank, "start the program");
  return board;
}

Board Board::open(int fd) { return Board(FileDescriptor(fd)); }

Board::Board(Board&& other) noexcept
    : fd_(std::move(other.fd_)), memory_(std::exchange(other.memory_, nullptr)) {}

Board::~Board() {
  if (memory_ != nullptr) munmap(memory_, sizeof(Memory));
}

void Board::set_phase(uint32_t rank, std::string_view phase) {
  char* text = memory_->slots[rank].phase;
  const size_t length = std::min(phase.size(), sizeof(Memory::Slot::phase) - 1);
  std::memcpy(text, phase.data(), length);
  text[length] = '\0';
}

std::string Board::phase_of(uint32_t rank) const {
  const Memory::Slot& slot = memory_->slots[rank];
  std::string phase(slot.phase, strnlen(slot.phase, sizeof slot.phase));
  return is_waiting(rank) ? phase + " (waiting for other ranks)" : phase;
}

bool Board::is_waiting(uint32_t rank) const { return memory_->slots[rank].waiting.load() != 0; }

void Board::barrier(uint32_t rank) {
  Memory& m = *memory_;
  m.slots[rank].waiting.store(1);
  const uint32_t generation = m.generation.load();
  if (m.arrived.fetch_add(1) + 1 == m.parties.load()) {
    m.arrived.store(0);  // before the others are let go: they may come back at once
    m.generation.fetch_add(1);
  } else {
    // Spin first, so that ranks start within a microsecond; then leave the core to slower ranks.
    constexpr uint32_t kSpins = 20000, kYields = 2000;
    for (uint32_t round = 0; m.generation.load(std::memory_order_acquire) == generation; ++round) {
      if (round < kSpins) continue;
      if (round < kSpins + kYields) {
        sched_yield();
      } else {
        const timespec nap{0, 100'000};
        nanosleep(&nap, nullptr);
      }
    }
  }
  m.slots[rank].waiting.store(0);
}

uint32_t Board::largest(uint32_t rank, uint32_t value) {
  memory_->slots[rank].value.store(value);
  barrier(rank);
  uint32_t result = 0;
  for (const Memory::Slot& slot : memory_->slots) result = std::max(result, slot.value.load());
  barrier(rank);  // nobody brings the next value before all have read this one
  return result;
}

}  // namespace shunt::bench
