#include "test/emulator/nccl/point_to_point.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "test/emulator/nccl/report.h"

namespace emu_nccl {
namespace {

using Bytes = unsigned char;

struct Transfer {
  bool sends;
  int peer;
  const Bytes* from;
  Bytes* to;
  size_t bytes;
  size_t moved = 0;
  bool complete = false;
};

template <typename Pipe>
bool has_room(Pipe& pipe) {
  return pipe.sent.load() - pipe.taken.load() < std::size(pipe.slots);
}
template <typename Pipe>
bool has_data(Pipe& pipe) {
  return pipe.sent.load() != pipe.taken.load();
}

class Exchange {
 public:
  Exchange(Core& core, std::span<const Operation> operations) : core_(core), seg_(core.segment) {
    for (const Operation& op : operations) {
      transfers_.push_back({op.function == Function::kSend, op.root,
                            static_cast<const Bytes*>(op.send), static_cast<Bytes*>(op.recv),
                            op.bytes()});
    }
  }

  bool run() {
    while (true) {
      const uint32_t seen = seg_.rings();
      if (core_.halt_operations.load()) return false;
      bool complete = true;
      if (advance_all(&complete)) continue;
      if (complete) return true;
      seg_.sleep(seen);
    }
  }

 private:
  // Every transfer that is first in the queue of its peer and direction. True: something moved.
  bool advance_all(bool* complete) {
    uint32_t busy[2] = {0, 0};
    bool moved = false;
    for (Transfer& t : transfers_) {
      if (t.complete) continue;
      const uint32_t bit = 1u << t.peer;
      if (!(busy[t.sends] & bit)) moved |= t.sends ? push(t) : pull(t);
      busy[t.sends] |= t.complete ? 0 : bit;
      *complete = *complete && t.complete;
    }
    return moved;
  }

  bool push(Transfer& t) {
    DataPipe& pipe = seg_.data_pipe(seg_.rank(), t.peer);
    bool moved = false;
    while (!t.complete && has_room(pipe)) {
      const uint32_t number = pipe.sent.load();
      auto& slot = pipe.slots[number % 2];
      slot.total = t.bytes;
      slot.bytes = std::min(kPipeBytes, t.bytes - t.moved);
      if (slot.bytes) std::memcpy(slot.data, t.from + t.moved, slot.bytes);
      t.moved += slot.bytes;
      t.complete = t.moved == t.bytes;
      pipe.sent.store(number + 1);
      seg_.ring(t.peer);
      moved = true;
    }
    return moved;
  }

  bool pull(Transfer& t) {
    DataPipe& pipe = seg_.data_pipe(t.peer, seg_.rank());
    bool moved = false;
    while (!t.complete && has_data(pipe)) {
      const uint32_t number = pipe.taken.load();
      const auto& slot = pipe.slots[number % 2];
      if (slot.total != t.bytes) {
        shout("rank " + std::to_string(seg_.rank()) + " receives " + std::to_string(t.bytes) +
              " bytes from rank " + std::to_string(t.peer) + ", which sends " +
              std::to_string(slot.total));
        seg_.wait_until(core_.halt_operations, [] { return false; });
        return false;
      }
      if (slot.bytes) std::memcpy(t.to + t.moved, slot.data, slot.bytes);
      t.moved += slot.bytes;
      t.complete = t.moved == t.bytes;
      pipe.taken.store(number + 1);
      seg_.ring(t.peer);
      moved = true;
    }
    return moved;
  }

  Core& core_;
  Segment& seg_;
  std::vector<Transfer> transfers_;
};

}  // namespace

bool run_point_to_point(Core& core, std::span<const Operation> operations) {
  return Exchange(core, operations).run();
}

bool send_note(Core& core, int to, const void* data, size_t bytes) {
  NotePipe& pipe = core.segment.note_pipe(core.segment.rank(), to);
  if (!core.segment.wait_until(core.halt_everything, [&] { return has_room(pipe); })) return false;
  const uint32_t number = pipe.sent.load();
  std::memcpy(pipe.slots[number % 2].data, data, bytes);
  pipe.sent.store(number + 1);
  core.segment.ring(to);
  return true;
}

bool receive_note(Core& core, int from, void* data, size_t bytes) {
  NotePipe& pipe = core.segment.note_pipe(from, core.segment.rank());
  if (!core.segment.wait_until(core.halt_everything, [&] { return has_data(pipe); })) return false;
  const uint32_t number = pipe.taken.load();
  std::memcpy(data, pipe.slots[number % 2].data, bytes);
  pipe.taken.store(number + 1);
  core.segment.ring(from);
  return true;
}

}  // namespace emu_nccl
