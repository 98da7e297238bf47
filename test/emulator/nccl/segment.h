// The memory that the ranks of one communicator share: an anonymous memfd that the maker of the
// unique id holds until all have joined. No name exists anywhere, so nothing stays whatever is
// killed when.
#pragma once

#include <nccl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace emu_nccl {

inline constexpr int kMaxRanks = 32;
inline constexpr size_t kBoardBytes = 128 * 1024;
inline constexpr size_t kPipeBytes = 32 * 1024;
inline constexpr size_t kNoteBytes = 128;

using Nonce = std::array<unsigned char, 16>;

// What an ncclUniqueId carries.
struct SegmentName {
  char magic[8];
  Nonce nonce;
  int32_t pid;
  int32_t fd;

  uint32_t short_id() const;
};
static_assert(sizeof(SegmentName) <= NCCL_UNIQUE_ID_BYTES && sizeof(SegmentName) <= kNoteBytes / 2);

// Who a rank is; written once, before `present`.
struct RankCard {
  std::atomic<uint32_t> present;
  int32_t pid;
  int32_t device;
  int32_t capability;  // e.g. 90
  unsigned char uuid[16];
};

// Whoever changes what rank r may be waiting for rings bell r.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;
};

struct alignas(64) BoardMark {
  std::atomic<uint32_t> published;
  std::atomic<uint32_t> reduced;  // its part of a long all-reduce step
  std::atomic<uint32_t> consumed;
};

// What a rank says about its call at every step, so that mismatched calls are noticed.
struct CallHeader {
  uint32_t function;
  uint32_t type;
  uint32_t op;
  int32_t root;
  uint64_t count;
  uint64_t step;
  bool operator==(const CallHeader&) const = default;
};

struct BoardSlot {
  CallHeader header;
  alignas(64) unsigned char data[kBoardBytes];
};

template <size_t kBytes>
struct PipeOf {
  struct Slot {
    uint64_t total;  // bytes of the whole message
    uint64_t bytes;  // in this slot
    alignas(16) unsigned char data[kBytes];
  };
  alignas(64) std::atomic<uint32_t> sent;
  alignas(64) std::atomic<uint32_t> taken;
  Slot slots[2];
};
using DataPipe = PipeOf<kPipeBytes>;
using NotePipe = PipeOf<kNoteBytes>;

struct SegmentHeader {
  char magic[8];
  Nonce nonce;
  std::atomic<uint32_t> ranks;  // 0 until the first rank joins
  std::atomic<uint32_t> joined;
  RankCard cards[kMaxRanks];
  Doorbell bells[kMaxRanks];
  BoardMark marks[kMaxRanks];
};

// A rank's view of the segment.
class Segment {
 public:
  Segment() = default;
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Takes nothing over: the caller closes fd. False: errno says why.
  bool map(int fd, int ranks, int rank);
  bool mapped() const { return header_.load() != nullptr; }

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  SegmentHeader& header() { return *header_.load(); }
  BoardSlot& board(int rank, uint32_t step);
  DataPipe& data_pipe(int from, int to);
  NotePipe& note_pipe(int from, int to);

  void ring(int rank);
  void ring_everyone();
  uint32_t rings() const;
  // Until `rings() != seen`, `halt`, or a while has passed. May return early.
  void sleep(uint32_t seen);

  // False: halted first.
  template <typename Ready>
  bool wait_until(const std::atomic<bool>& halt, Ready ready) {
    // Few cores are shared by many ranks: a long spin would keep the awaited rank from running.
    constexpr int kSpins = 20;
    for (int spin = 0;; ++spin) {
      const uint32_t seen = rings();
      if (halt.load()) return false;
      if (ready()) return true;
      if (spin < kSpins) {
        std::this_thread::yield();
      } else {
        sleep(seen);
      }
    }
  }

 private:
  // Atomic: an abort may come while another thread maps.
  std::atomic<SegmentHeader*> header_{nullptr};
  size_t bytes_ = 0;
  int ranks_ = 0;
  int rank_ = 0;
};

// Makes a segment, held open by this process. False: errno says why.
bool make_segment(SegmentName* name);
// A descriptor of the named segment for the caller to close; -1: its maker is gone, or it was used
// up.
int open_segment(const SegmentName& name);
// This process does not hold the segment open any longer; nothing where another process made it.
void drop_segment(const SegmentName& name);

}  // namespace emu_nccl
