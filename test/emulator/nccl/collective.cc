#include "test/emulator/nccl/collective.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "test/emulator/nccl/report.h"

namespace emu_nccl {
namespace {

using Bytes = unsigned char;

// Above so many bytes a step one more wait is cheaper than adding everything everywhere.
constexpr size_t kShareFrom = 8 * 1024;

// Who publishes and who reads in one pass over the data. A reduce-scatter takes one pass for each
// block.
struct Pass {
  const Bytes* source = nullptr;  // nullptr: this rank publishes nothing
  Bytes* target = nullptr;        // nullptr: this rank reads nothing
  int block = -1;                 // reduce-scatter, reduce: the ring that adds ends at this rank
};

Pass pass_of(const Operation& op, int pass, int rank) {
  const size_t bytes = op.bytes();
  const auto* send = static_cast<const Bytes*>(op.send);
  auto* recv = static_cast<Bytes*>(op.recv);
  switch (op.function) {
    case Function::kReduce:
      return {send, rank == op.root ? recv : nullptr, op.root};
    case Function::kBroadcast:
      return {rank == op.root ? send : nullptr, recv, -1};
    case Function::kReduceScatter:
      return {send + static_cast<size_t>(pass) * bytes, rank == pass ? recv : nullptr, pass};
    default:
      return {send, recv, -1};
  }
}

std::string described(const CallHeader& h) {
  return std::string(name_of(static_cast<Function>(h.function))) + " of " +
         std::to_string(h.count) + " " + name_of(static_cast<ncclDataType_t>(h.type)) + " " +
         name_of_reduction(h.op) + " root " + std::to_string(h.root) + " step " +
         std::to_string(h.step);
}

class Collective {
 public:
  Collective(Core& core, const Operation& op)
      : core_(core), seg_(core.segment), op_(op), n_(seg_.ranks()), rank_(seg_.rank()) {
    element_ = size_of(op.type);
    header_ = {static_cast<uint32_t>(op.function),
               static_cast<uint32_t>(op.type),
               is_reduction(op.function) ? op.reduction.shown : 0,
               op.root,
               op.count,
               0};
  }

  bool run() {
    const int passes = op_.function == Function::kReduceScatter ? n_ : 1;
    for (int p = 0; p < passes; ++p) {
      const Pass pass = pass_of(op_, p, rank_);
      for (size_t offset = 0; offset < op_.bytes(); offset += kBoardBytes) {
        if (!step(pass, offset, std::min(kBoardBytes, op_.bytes() - offset))) return false;
      }
    }
    return true;
  }

 private:
  bool wait_for_all(std::atomic<uint32_t> BoardMark::*mark, uint32_t value) {
    for (int r = 0; r < n_; ++r) {
      const auto& word = seg_.header().marks[r].*mark;
      const auto there = [&] { return static_cast<int32_t>(word.load() - value) >= 0; };
      if (!seg_.wait_until(core_.halt_operations, there)) return false;
    }
    return true;
  }

  bool step(const Pass& pass, size_t offset, size_t bytes) {
    const uint32_t number = ++core_.board_step;
    ++header_.step;
    // The slot was last used two steps ago.
    if (!wait_for_all(&BoardMark::consumed, number - 2)) return false;
    BoardSlot& own = seg_.board(rank_, number);
    own.header = header_;
    if (pass.source) {
      std::memcpy(own.data, pass.source + offset, bytes);
      if (op_.reduction.scale) scale_own(own.data, bytes / element_);
    }
    seg_.header().marks[rank_].published.store(number);
    seg_.ring_everyone();
    if (!wait_for_all(&BoardMark::published, number)) return false;
    if (!calls_match(number)) return false;
    if (op_.function == Function::kAllReduce && bytes > kShareFrom) {
      if (!reduce_together(pass, offset, bytes, number)) return false;
    } else if (pass.target) {
      read(pass, offset, 0, bytes, number);
    }
    seg_.header().marks[rank_].consumed.store(number);
    seg_.ring_everyone();
    return true;
  }

  void scale_own(void* data, size_t count) {
    Scalar scalar = op_.reduction.scalar;
    if (op_.reduction.scalar_address)
      std::memcpy(scalar.bytes, op_.reduction.scalar_address, element_);
    scale(op_.type, data, count, scalar);
  }

  // The real NCCL would hang or mix up data. So that a test notices: say it, then hang.
  bool calls_match(uint32_t number) {
    for (int r = 0; r < n_; ++r) {
      const CallHeader& other = seg_.board(r, number).header;
      if (other == header_) continue;
      char id[16];
      std::snprintf(id, sizeof(id), "%08x", core_.id.load());
      shout("mismatched calls on communicator " + std::string(id) + ": rank " +
            std::to_string(rank_) + " " + described(header_) + "; rank " + std::to_string(r) + " " +
            described(other));
      return seg_.wait_until(core_.halt_operations, [] { return false; });
    }
    return true;
  }

  // Every rank adds one part and publishes it, so that n ranks do not all add everything. A part of
  // a slot is read by the rank alone that adds it: the sum may take the place of the contribution.
  bool reduce_together(const Pass& pass, size_t offset, size_t bytes, uint32_t number) {
    const size_t part = (bytes / element_ + n_ - 1) / n_ * element_;
    const auto begin = [&](int r) { return std::min(bytes, static_cast<size_t>(r) * part); };
    const auto length = [&](int r) { return begin(r + 1) - begin(r); };
    Bytes* target = pass.target + offset;
    read(pass, offset, begin(rank_), length(rank_), number);
    std::memcpy(seg_.board(rank_, number).data + begin(rank_), target + begin(rank_),
                length(rank_));
    seg_.header().marks[rank_].reduced.store(number);
    seg_.ring_everyone();
    if (!wait_for_all(&BoardMark::reduced, number)) return false;
    for (int r = 0; r < n_; ++r)
      if (r != rank_)
        std::memcpy(target + begin(r), seg_.board(r, number).data + begin(r), length(r));
    return true;
  }

  // Bytes [skip, skip + bytes) of the slots, which lie at `offset` of the whole.
  void read(const Pass& pass, size_t offset, size_t skip, size_t bytes, uint32_t number) {
    switch (op_.function) {
      case Function::kBroadcast:
        std::memcpy(pass.target + offset, seg_.board(op_.root, number).data, bytes);
        return;
      case Function::kAllGather:
        for (int r = 0; r < n_; ++r) {
          std::memcpy(pass.target + static_cast<size_t>(r) * op_.bytes() + offset,
                      seg_.board(r, number).data, bytes);
        }
        return;
      default:
        add_in_ring_order(pass, offset, skip, bytes, number);
    }
  }

  // NCCL's ring: chunk c of n sets out at rank c+1 and is complete at rank c, rounded to the type
  // at every hop. An all-reduce here has n chunks of equal size; NCCL's differ with size and
  // channels.
  void add_in_ring_order(const Pass& pass, size_t offset, size_t skip, size_t bytes,
                         uint32_t number) {
    const size_t chunk = (op_.count + n_ - 1) / n_ * element_;
    for (size_t at = skip; at < skip + bytes;) {
      size_t length = skip + bytes - at;
      int last = pass.block;
      if (last < 0) {
        const size_t c = (offset + at) / chunk;
        last = static_cast<int>(c);
        length = std::min(length, (c + 1) * chunk - (offset + at));
      }
      Bytes* target = pass.target + offset + at;
      const size_t count = length / element_;
      for (int hop = 1; hop <= n_; ++hop) {
        const Bytes* from = seg_.board((last + hop) % n_, number).data + at;
        if (hop == 1) {
          std::memcpy(target, from, length);
        } else {
          combine(op_.type, op_.reduction.combine, target, from, count);
        }
      }
      if (op_.reduction.divide) divide(op_.type, target, count, n_);
      at += length;
    }
  }

  Core& core_;
  Segment& seg_;
  const Operation& op_;
  const int n_;
  const int rank_;
  size_t element_;
  CallHeader header_;
};

}  // namespace

const char* name_of(Function function) {
  constexpr const char* kNames[] = {"AllReduce", "Reduce", "Broadcast", "ReduceScatter",
                                    "AllGather", "Send",   "Recv"};
  return kNames[static_cast<unsigned>(function)];
}

const char* name_of_reduction(unsigned shown) {
  constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg", "premulsum"};
  return shown < std::size(kNames) ? kNames[shown] : "?";
}

bool run_collective(Core& core, const Operation& operation) {
  return Collective(core, operation).run();
}

}  // namespace emu_nccl
