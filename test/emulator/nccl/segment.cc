#include "test/emulator/nccl/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

namespace emu_nccl {
namespace {

constexpr char kMagic[8] = "EMUNCCL";

constexpr size_t board_offset() { return (sizeof(SegmentHeader) + 4095) / 4096 * 4096; }
constexpr size_t data_offset(size_t n) { return board_offset() + n * 2 * sizeof(BoardSlot); }
constexpr size_t note_offset(size_t n) { return data_offset(n) + n * n * sizeof(DataPipe); }
constexpr size_t segment_bytes(size_t n) { return note_offset(n) + n * n * sizeof(NotePipe); }

template <typename T>
T& at(void* base, size_t offset) {
  return *reinterpret_cast<T*>(static_cast<unsigned char*>(base) + offset);
}

// Segments whose ids this process gave out, until all ranks have joined. Never destroyed: other
// threads may still be making communicators while the process exits.
struct Held {
  std::mutex mutex;
  std::map<Nonce, int> fds;
};
Held& held() {
  static Held* instance = new Held;
  return *instance;
}

bool names_this(const SegmentName& name, int fd) {
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) return false;
  const auto* header = static_cast<const SegmentHeader*>(page);
  const bool same =
      std::memcmp(header->magic, kMagic, sizeof(kMagic)) == 0 && header->nonce == name.nonce;
  ::munmap(page, 4096);
  return same;
}

}  // namespace

uint32_t SegmentName::short_id() const {
  uint32_t id;
  std::memcpy(&id, nonce.data(), sizeof(id));
  return id;
}

bool make_segment(SegmentName* name) {
  const int fd = ::memfd_create("emulated-nccl", MFD_CLOEXEC);
  if (fd < 0) return false;
  // Sparse: a communicator of n ranks touches its share only.
  if (::ftruncate(fd, static_cast<off_t>(segment_bytes(kMaxRanks))) != 0) {
    ::close(fd);
    return false;
  }
  std::memcpy(name->magic, kMagic, sizeof(kMagic));
  name->pid = ::getpid();
  name->fd = fd;
  const ssize_t got = ::getrandom(name->nonce.data(), name->nonce.size(), 0);
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got != static_cast<ssize_t>(name->nonce.size()) || page == MAP_FAILED) {
    ::close(fd);
    return false;
  }
  auto* header = static_cast<SegmentHeader*>(page);
  std::memcpy(header->magic, kMagic, sizeof(kMagic));
  header->nonce = name->nonce;
  ::munmap(page, 4096);
  std::lock_guard lock(held().mutex);
  held().fds[name->nonce] = fd;
  return true;
}

int open_segment(const SegmentName& name) {
  if (std::memcmp(name.magic, kMagic, sizeof(kMagic)) != 0) return -1;
  {
    std::lock_guard lock(held().mutex);
    const auto found = held().fds.find(name.nonce);
    if (found != held().fds.end()) return ::fcntl(found->second, F_DUPFD_CLOEXEC, 0);
  }
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0 && names_this(name, fd)) return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

void drop_segment(const SegmentName& name) {
  std::lock_guard lock(held().mutex);
  const auto found = held().fds.find(name.nonce);
  if (found == held().fds.end()) return;
  ::close(found->second);
  held().fds.erase(found);
}

Segment::~Segment() {
  if (mapped()) ::munmap(&header(), bytes_);
}

bool Segment::map(int fd, int ranks, int rank) {
  bytes_ = segment_bytes(static_cast<size_t>(ranks));
  void* base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return false;
  ranks_ = ranks;
  rank_ = rank;
  header_.store(static_cast<SegmentHeader*>(base));
  return true;
}

BoardSlot& Segment::board(int rank, uint32_t step) {
  const size_t index = static_cast<size_t>(rank) * 2 + step % 2;
  return at<BoardSlot>(&header(), board_offset() + index * sizeof(BoardSlot));
}

DataPipe& Segment::data_pipe(int from, int to) {
  const size_t n = static_cast<size_t>(ranks_), index = static_cast<size_t>(from) * n + to;
  return at<DataPipe>(&header(), data_offset(n) + index * sizeof(DataPipe));
}

NotePipe& Segment::note_pipe(int from, int to) {
  const size_t n = static_cast<size_t>(ranks_), index = static_cast<size_t>(from) * n + to;
  return at<NotePipe>(&header(), note_offset(n) + index * sizeof(NotePipe));
}

uint32_t Segment::rings() const { return header_.load()->bells[rank_].rings.load(); }

// The ringer counts, then looks for sleepers; the sleeper announces itself, then the kernel
// compares the count. Both sequentially consistent: no ring is lost. A killed sleeper only costs
// system calls.
void Segment::ring(int rank) {
  Doorbell& bell = header().bells[rank];
  bell.rings.fetch_add(1);
  if (bell.sleepers.load() != 0)
    ::syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Segment::ring_everyone() {
  for (int r = 0; r < ranks_; ++r)
    if (r != rank_) ring(r);
}

void Segment::sleep(uint32_t seen) {
  Doorbell& bell = header().bells[rank_];
  const timespec limit = {0, 200'000'000};
  bell.sleepers.fetch_add(1);
  ::syscall(SYS_futex, &bell.rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
  bell.sleepers.fetch_sub(1);
}

}  // namespace emu_nccl
