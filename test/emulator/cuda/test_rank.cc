#include "test_rank.h"

#include <algorithm>
#include <cstring>

using namespace shunt;

namespace emu_test {
namespace {

template <typename T>
T* allocate(size_t bytes) {
  CUdeviceptr address = 0;
  CU(cuMemAlloc(&address, bytes));
  return reinterpret_cast<T*>(address);
}

}  // namespace

Rank::Rank(int rank, int ranks)
    : rank_(static_cast<uint32_t>(rank)),
      ranks_(static_cast<uint32_t>(ranks)),
      geometry_(plan_geometry(ranks_, kCap, limits_)),
      peer_slabs_(ranks_) {
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&context_, rank));
  make_current();
  const uint32_t image[4] = {0xba55ed50};
  CU(cuModuleLoadData(&module_, image));
  kernel_ = function(
      kernel_name(DataType::kFloat32, Protocol::kSentinel, Variant::kAny, peer_batch_for(ranks_))
          .c_str());
  CU(cuFuncLoad(kernel_));
  CU(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  send_ = allocate<float>(kCap);
  recv_ = allocate<float>(kCap);
  void* board = nullptr;
  CU(cuMemHostAlloc(&board, sizeof(HostBoard), CU_MEMHOSTALLOC_DEVICEMAP));
  std::memset(board, 0, sizeof(HostBoard));
  board_ = static_cast<HostBoard*>(board);

  slab_ = allocate<unsigned char>(geometry_.slab_bytes());
  std::memset(slab_, 0, geometry_.slab_bytes());
  for (uint32_t peer = 0; peer + 1 < ranks_; ++peer) {
    for (uint32_t part = 0; part < geometry_.parts; ++part) {
      unsigned char* at = slab_ + geometry_.mailbox_offset(peer) + part * geometry_.part_bytes();
      std::memset(at + geometry_.sentinel_offset(), 0xff,
                  geometry_.part_bytes() - geometry_.sentinel_offset());
    }
  }
  auto* lanes = reinterpret_cast<LaneState*>(slab_ + Geometry::kLaneOffset);
  for (uint32_t lane = 0; lane < geometry_.lanes; ++lane) lanes[lane].counter = kFirstCounter;
}

Rank::~Rank() {
  order(HostOrder::kAbort);
  make_current();
  cuStreamDestroy(stream_);
  cuModuleUnload(module_);
  cuDevicePrimaryCtxRelease(static_cast<int>(rank_));
  cuCtxSetCurrent(nullptr);
}

CUfunction Rank::function(const char* name) {
  CUfunction found = nullptr;
  CU(cuModuleGetFunction(&found, module_, name));
  return found;
}

void Rank::fill(float value) {
  std::fill_n(send_, kCap / sizeof(float), value);
  std::fill_n(recv_, kCap / sizeof(float), -1.f);
}

unsigned char* Rank::mailbox(unsigned char* slab, uint32_t owner, uint32_t writer) const {
  return slab + geometry_.mailbox_offset(peer_index(owner, writer));
}

AllReduceParams Rank::params(size_t count, const LaunchPlan& plan) const {
  PeerLink peers[kMaxPeers] = {};
  for (uint32_t i = 0; i + 1 < ranks_; ++i) {
    const uint32_t peer = peer_at(rank_, i);
    peers[i] = {mailbox(peer_slabs_[peer], peer, rank_), mailbox(slab_, rank_, peer)};
  }
  AllReduceParams p =
      common_params(geometry_, plan.protocol, rank_, slab_, board_, peers);
  set_call(p, plan, send_, recv_, count, DataType::kFloat32, ReduceOp::kSum, calls_);
  return p;
}

void Rank::launch(CUstream on, size_t count, uint64_t timeout_ns) {
  make_current();
  ++calls_;
  const LaunchPlan plan = plan_launch(count * sizeof(float), DataType::kFloat32, limits_);
  AllReduceParams p = params(count, plan);
  p.timeout_ns = timeout_ns;
  void* arguments[] = {&p};
  CU(cuLaunchKernel(kernel_, plan.lanes, 1, 1, plan.threads + kHeaderThreads, 1, 1, 0, on,
                    arguments, nullptr));
}

void Rank::order(HostOrder order) {
  __atomic_store_n(&board_->order, static_cast<uint32_t>(order), __ATOMIC_RELAXED);
}

Stop Rank::stopped() const {
  return static_cast<Stop>(*reinterpret_cast<const uint32_t*>(slab_ + Geometry::kStopOffset));
}

const uint32_t* Rank::next_packet() const {
  const auto* lanes = reinterpret_cast<const LaneState*>(slab_ + Geometry::kLaneOffset);
  return reinterpret_cast<const uint32_t*>(slab_ + geometry_.mailbox_offset(0) +
                                           part_of(lanes[0].counter, geometry_.parts) *
                                               geometry_.part_bytes() +
                                           geometry_.sentinel_offset());
}

Pair::Pair() {
  for (int rank : {0, 1}) {
    Rank& mine = (*this)[rank];
    Rank& other = (*this)[1 - rank];
    mine.make_current();
    const CUresult enabled = cuCtxEnablePeerAccess(other.context(), 0);
    REQUIRE((enabled == CUDA_SUCCESS || enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
    mine.connect(1 - rank, other.slab());
  }
}

}  // namespace emu_test
