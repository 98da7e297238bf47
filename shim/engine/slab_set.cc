#include "shim/engine/slab_set.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace shunt {
namespace {

constexpr size_t kBoardBytes = (sizeof(HostBoard) + 4095) / 4096 * 4096;
constexpr size_t kGranule = 2 << 20;  // cuMemAlloc hands out shares of granules of this size

void fill_words(cu::Ptr at, unsigned word, size_t bytes, cu::Stream stream) {
  if (bytes != 0) SHUNT_CU(set32, at, word, bytes / 4, stream);
}

void wait_idle(cu::Stream stream) {
  cu::Result result;
  while ((result = cu::api().stream_query(stream)) == cu::kNotReady) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  cu::check(result, "cuStreamQuery");
}

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

}  // namespace

PrivateStream::PrivateStream(const GpuDevice& device) : device_(device) {
  cu::ContextScope current(device.context);
  SHUNT_CU(stream_create, &stream_, cu::kStreamNonBlocking);
}

PrivateStream::~PrivateStream() {
  try {
    cu::ContextScope current(device_.context);
    cu::api().stream_destroy(stream_);
  } catch (const cu::Error&) {
    // The context is gone with its streams: the process is exiting or its GPU has failed.
  }
}

bool PrivateStream::idle() const {
  const cu::Result result = cu::api().stream_query(stream_);
  if (result == cu::kNotReady) return false;
  cu::check(result, "cuStreamQuery");
  return true;
}

SlabSet::SlabSet(const GpuDevice& device, const Geometry& geometry, uint32_t rank, cu::Stream stream)
    : device_(device), geometry_(geometry), rank_(rank) {
  cu::ContextScope current(device.context);
  bytes_ = (geometry.slab_bytes() + kGranule - 1) / kGranule * kGranule;
  // Of our own and only registered: after a reset of the context the watchdog still looks at it. Shared, so that
  // a fork does not part what the host and the GPU see.
  void* const page = mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw cu::Error("mmap of a page", -1);
  madvise(page, kBoardBytes, MADV_DONTFORK);
  const cu::Result pinned =
      cu::api().host_register(page, kBoardBytes, cu::kHostRegisterPortable | cu::kHostRegisterDeviceMap);
  if (pinned != cu::kSuccess) {
    munmap(page, kBoardBytes);
    cu::check(pinned, cu::Names::host_register);
  }
  board_ = new (page) HostBoard{};
  SHUNT_CU(host_device_pointer, &board_on_device_, page, 0);
  if (const cu::Result result = cu::api().mem_alloc(&slab_, bytes_); result != cu::kSuccess) {
    cu::api().host_unregister(page);
    munmap(page, kBoardBytes);
    cu::check(result, cu::Names::mem_alloc);
  }

  try {
    if (geometry.placement == Placement::kHost) {
      outbox_.create(geometry.host_bytes(), device.numa_node);
    }
    fill(stream);
  } catch (const cu::Error&) {
    free_unmapped();
    throw;
  }
}

void SlabSet::fill(cu::Stream stream) {
  fill_words(slab_, 0, bytes_, stream);
  LaneState first{};
  first.counter = kFirstCounter;
  std::vector<LaneState> lanes(geometry_.lanes, first);
  SHUNT_CU(copy_to_device, slab_ + Geometry::kLaneOffset, lanes.data(),
           lanes.size() * sizeof(LaneState), stream);
  const size_t sentinel = geometry_.sentinel_offset(), bytes = geometry_.part_bytes() - sentinel;
  for (uint32_t part = 0; part < geometry_.parts; ++part) {
    const size_t at = part * geometry_.part_bytes() + sentinel;
    for (uint32_t i = 0; i < geometry_.mailboxes(); ++i) {
      fill_words(slab_ + geometry_.mailbox_offset(i) + at, 0xffffffffu, bytes, stream);
    }
    if (outbox_.host() != nullptr) std::memset(outbox_.host() + at, 0xff, bytes);
  }
  wait_idle(stream);  // `lanes` must outlive its copy
}

void SlabSet::offer(SlabOffer& offer) const {
  offer.bytes = geometry_.slab_bytes() + geometry_.host_bytes();
  if (geometry_.placement == Placement::kHost) {
    offer.address = reinterpret_cast<uintptr_t>(outbox_.device());
    offer.shared = outbox_.name();
    return;
  }
  offer.address = slab_;
  cu::ContextScope current(device_.context);
  cu::IpcHandle handle{};
  SHUNT_CU(ipc_get, &handle, slab_);
  std::memcpy(offer.ipc, handle.bytes, sizeof(offer.ipc));
}

void SlabSet::free_unmapped() noexcept {
  try {
    cu::ContextScope current(device_.context);
    cu::api().mem_free(slab_);
    cu::api().host_unregister(board_);
    munmap(board_, kBoardBytes);
    outbox_.unmap();
    slab_ = 0;
    board_ = nullptr;
  } catch (const cu::Error&) {
    // The context is gone, and the memory with it.
  }
}

cu::Ptr SlabSet::map_slab(const Facts& mine, const Facts& theirs, const SlabOffer& offer) const {
  if (theirs.process_nonce != mine.process_nonce) {
    cu::Ptr base = 0;
    cu::IpcHandle handle{};
    std::memcpy(handle.bytes, offer.ipc, sizeof(handle.bytes));
    SHUNT_CU(ipc_open, &base, handle, cu::kIpcLazyEnablePeerAccess);
    return base;
  }
  const cu::Device ordinal = ordinal_of(theirs.gpu);
  if (ordinal < 0) throw cu::Error("the peer's GPU is unknown in its own process", -1);
  if (ordinal == device_.ordinal) return offer.address;  // ranks of a kernel test share a GPU
  int can = 0;
  SHUNT_CU(can_access_peer, &can, device_.ordinal, ordinal);
  if (can == 0) throw cu::Error("no peer access (cuDeviceCanAccessPeer)", -1);
  const cu::Result result = cu::api().enable_peer(gpu_device(ordinal).context, 0);
  if (result != cu::kPeerAccessAlreadyEnabled) cu::check(result, "cuCtxEnablePeerAccess");
  return offer.address;
}

unsigned char* SlabSet::map_outbox(const Facts& mine, const Facts& theirs, uint32_t peer,
                                   const SlabOffer& offer) {
  if (theirs.process_nonce == mine.process_nonce) {
    return reinterpret_cast<unsigned char*>(static_cast<uintptr_t>(offer.address));
  }
  if (theirs.pid_namespace != mine.pid_namespace) {
    throw cu::Error("the ranks are in different PID namespaces, so host memory cannot be shared", -1);
  }
  mapped_[peer].open(theirs.pid, offer.shared, geometry_.host_bytes());
  return mapped_[peer].device();
}

void SlabSet::map_peers(std::span<const Facts> facts, std::span<const SlabOffer> offers,
                        int& failed_peer) {
  cu::ContextScope current(device_.context);
  const auto pointer = [](cu::Ptr at) { return reinterpret_cast<unsigned char*>(at); };
  PeerLink peers[kMaxPeers] = {};
  for (uint32_t peer = 0; peer < geometry_.ranks; ++peer) {
    if (peer == rank_) continue;
    failed_peer = static_cast<int>(peer);
    const uint32_t index = peer_index(rank_, peer);
    PeerLink& link = peers[index];
    switch (geometry_.placement) {
      case Placement::kPush:
        link.write = pointer(map_slab(facts[rank_], facts[peer], offers[peer]) +
                             geometry_.mailbox_offset(peer_index(peer, rank_)));
        link.read = pointer(slab_ + geometry_.mailbox_offset(index));
        break;
      case Placement::kPull:
        link.write = pointer(slab_ + geometry_.mailbox_offset(0));
        link.read = pointer(map_slab(facts[rank_], facts[peer], offers[peer]) + geometry_.mailbox_offset(0));
        break;
      case Placement::kHost:
        link.write = outbox_.device();
        link.read = map_outbox(facts[rank_], facts[peer], peer, offers[peer]);
        break;
    }
  }
  failed_peer = -1;
  for (size_t p = 0; p < kProtocols; ++p) {
    params_[p] = common_params(geometry_, static_cast<Protocol>(p), rank_, pointer(slab_),
                               reinterpret_cast<HostBoard*>(board_on_device_), peers);
  }
}

uint64_t SlabSet::clean_state(cu::Stream stream) const {
  cu::ContextScope current(device_.context);
  if (__atomic_load_n(&board_->order, __ATOMIC_RELAXED) !=
          static_cast<uint32_t>(HostOrder::kRun) ||
      board_->fault.fault != Fault::kNone) {
    return 0;
  }
  std::vector<LaneState> lanes(geometry_.lanes);
  uint32_t stop = 0, entering = 0;
  SHUNT_CU(copy_to_host, &stop, slab_ + Geometry::kStopOffset, sizeof(stop), stream);
  SHUNT_CU(copy_to_host, &entering, slab_ + Geometry::kEnteringOffset, sizeof(entering), stream);
  SHUNT_CU(copy_to_host, lanes.data(), slab_ + Geometry::kLaneOffset,
           lanes.size() * sizeof(LaneState), stream);
  wait_idle(stream);
  if (stop != static_cast<uint32_t>(Stop::kNone) || entering != 0) return 0;
  uint64_t hash = id_;
  for (const LaneState& lane : lanes) {
    if (lane.counter == kClaimed) return 0;
    hash = mix(hash, lane.counter);
  }
  return hash == 0 ? 1 : hash;
}

void SlabSet::stop() const noexcept {
  try {
    cu::RelaxedCaptureScope relaxed;
    cu::ContextScope current(device_.context);
    PrivateStream stream(device_);
    fill_words(slab_ + Geometry::kStopOffset, static_cast<unsigned>(Stop::kAborted), sizeof(uint32_t),
         stream.get());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (!stream.idle() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  } catch (const cu::Error&) {
    // The context has failed: no kernel will start in it.
  }
}

struct SlabPool::State {
  std::mutex mutex;
  std::vector<std::unique_ptr<SlabSet>> free;
};

SlabPool::SlabPool() : state_(*new State) {}

SlabPool& SlabPool::get() {
  static auto& pool = *new SlabPool;  // never destroyed: exit order is the program's affair
  return pool;
}

void SlabPool::give(std::unique_ptr<SlabSet> set) {
  std::lock_guard lock(state_.mutex);
  state_.free.push_back(std::move(set));
}

std::vector<std::unique_ptr<SlabSet>> SlabPool::reserve(const GpuDevice& device, uint32_t rank,
                                                        uint32_t ranks) {
  std::vector<std::unique_ptr<SlabSet>> reserved;
  std::lock_guard lock(state_.mutex);
  // By id: ranks that destroyed their communicators in different order must offer the same ones.
  std::sort(state_.free.begin(), state_.free.end(),
            [](const auto& a, const auto& b) { return a->id() < b->id(); });
  for (auto& set : state_.free) {
    if (reserved.size() < kPoolOffers && &set->device() == &device && set->rank() == rank &&
        set->geometry().ranks == ranks) {
      reserved.push_back(std::move(set));
    }
  }
  std::erase(state_.free, nullptr);
  return reserved;
}

}  // namespace shunt
