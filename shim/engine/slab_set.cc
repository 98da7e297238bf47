#include "shim/engine/slab_set.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace shunt {
namespace {

constexpr size_t kGranule = 2 << 20;  // cuMemAlloc hands out shares of granules of this size

void fill(cu::Ptr at, unsigned word, size_t bytes, cu::Stream stream) {
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
  void* page = nullptr;
  SHUNT_CU(host_alloc, &page, sizeof(HostBoard), cu::kHostAllocPortable | cu::kHostAllocDeviceMap);
  board_ = new (page) HostBoard{};
  SHUNT_CU(host_device_pointer, &board_on_device_, page, 0);
  if (const cu::Result result = cu::api().mem_alloc(&slab_, bytes_); result != cu::kSuccess) {
    cu::api().host_free(page);
    cu::check(result, cu::Names::mem_alloc);
  }

  fill(slab_, 0, bytes_, stream);
  std::vector<LaneState> lanes(geometry.lanes, LaneState{kFirstCounter, {}});
  SHUNT_CU(copy_to_device, slab_ + Geometry::kLaneOffset, lanes.data(),
           lanes.size() * sizeof(LaneState), stream);
  for (uint32_t i = 0; i + 1 < geometry.ranks; ++i) {
    for (uint32_t part = 0; part < geometry.parts; ++part) {
      const size_t at = geometry.mailbox_offset(i) + part * geometry.part_bytes();
      fill(slab_ + at + geometry.sentinel_offset(), 0xffffffffu,
           geometry.part_bytes() - geometry.sentinel_offset(), stream);
    }
  }
  wait_idle(stream);  // `lanes` must outlive its copy

}

void SlabSet::offer(SlabOffer& offer) const {
  offer.address = slab_;
  offer.bytes = geometry_.slab_bytes();
  cu::ContextScope current(device_.context);
  cu::IpcHandle handle{};
  SHUNT_CU(ipc_get, &handle, slab_);
  std::memcpy(offer.ipc, handle.bytes, sizeof(offer.ipc));
}

void SlabSet::free_unmapped() noexcept {
  try {
    cu::ContextScope current(device_.context);
    cu::api().mem_free(slab_);
    cu::api().host_free(board_);
    slab_ = 0;
    board_ = nullptr;
  } catch (const cu::Error&) {
    // The context is gone, and the memory with it.
  }
}

void SlabSet::map_peers(std::span<const Facts> facts, std::span<const SlabOffer> offers,
                        int& failed_peer) {
  cu::ContextScope current(device_.context);
  unsigned char* write[kMaxPeers] = {};
  for (uint32_t peer = 0; peer < geometry_.ranks; ++peer) {
    if (peer == rank_) continue;
    failed_peer = static_cast<int>(peer);
    cu::Ptr base = 0;
    if (facts[peer].process_nonce == facts[rank_].process_nonce) {
      const cu::Device ordinal = ordinal_of(facts[peer].gpu);
      if (ordinal < 0) throw cu::Error("the peer's GPU is unknown in its own process", -1);
      int can = ordinal == device_.ordinal ? 1 : 0;  // ranks of a kernel test share a GPU
      if (can == 0) SHUNT_CU(can_access_peer, &can, device_.ordinal, ordinal);
      if (can == 0) throw cu::Error("no peer access (cuDeviceCanAccessPeer)", -1);
      const cu::Result result = ordinal == device_.ordinal
                                    ? cu::kSuccess
                                    : cu::api().enable_peer(gpu_device(ordinal).context, 0);
      if (result != cu::kPeerAccessAlreadyEnabled) cu::check(result, "cuCtxEnablePeerAccess");
      base = offers[peer].address;
    } else {
      cu::IpcHandle handle{};
      std::memcpy(handle.bytes, offers[peer].ipc, sizeof(handle.bytes));
      SHUNT_CU(ipc_open, &base, handle, cu::kIpcLazyEnablePeerAccess);
    }
    write[peer_index(rank_, peer)] = reinterpret_cast<unsigned char*>(
        base + geometry_.mailbox_offset(peer_index(peer, rank_)));
  }
  failed_peer = -1;
  for (size_t p = 0; p < kProtocols; ++p) {
    params_[p] = common_params(geometry_, static_cast<Protocol>(p), rank_,
                               reinterpret_cast<unsigned char*>(slab_),
                               reinterpret_cast<HostBoard*>(board_on_device_), write);
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
  uint32_t stop = 0;
  SHUNT_CU(copy_to_host, &stop, slab_ + Geometry::kStopOffset, sizeof(stop), stream);
  SHUNT_CU(copy_to_host, lanes.data(), slab_ + Geometry::kLaneOffset,
           lanes.size() * sizeof(LaneState), stream);
  wait_idle(stream);
  if (stop != static_cast<uint32_t>(Stop::kNone)) return 0;
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
    fill(slab_ + Geometry::kStopOffset, static_cast<unsigned>(Stop::kAborted), sizeof(uint32_t),
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
