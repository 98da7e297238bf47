#include "test/cases/mixed_call.h"

#include <cstring>

namespace cases::mixed {
namespace {

constexpr unsigned char kPoison = 0x7b;
constexpr size_t kGuard = 256;

}  // namespace

Draw draw_call(Random& all, uint64_t serial, size_t cap, const Draw* like) {
  Draw d;
  d.serial = serial;
  d.link = all.below(2);
  d.type = static_cast<DataType>(all.below(shunt::kDataTypes));
  d.op = static_cast<ReduceOp>(all.below(shunt::kReduceOps));
  if (like != nullptr) {
    d.type = like->type;
    d.op = like->op;
    d.count = 1 + all.below(cap / size_of(d.type) / (all.below(4) == 0 ? 4 : 20));
    return d;
  }
  const size_t most = cap / size_of(d.type);
  switch (all.below(8)) {
    case 0:
      d.count = all.below(4);
      break;
    case 1:
      d.count = most - all.below(3);
      break;
    case 2:
      d.count = most + 1 + all.below(most / 2);
      break;
    case 3:
    case 4:
      d.count = 1 + all.below(most);
      break;
    default:
      d.count = 1 + all.below(most / 8);
  }
  return d;
}

void decide(std::vector<Draw>& draws, size_t cap) {
  size_t sums[2] = {};
  for (const Draw& d : draws) sums[d.link] += d.bytes();
  for (Draw& d : draws) {
    d.forwarded = d.count == 0 || sums[d.link] > cap;
    const bool any_order = d.op == ReduceOp::kMax || d.op == ReduceOp::kMin || !is_float(d.type);
    // Forwarded ones must be exact in any order, rounded at every hop.
    if (d.forwarded && !any_order && (is_float8(d.type) || d.op == ReduceOp::kAvg)) d.op = ReduceOp::kMax;
  }
}

Call::Call(const Draw& draw, const Link& link, CUstream stream, Random& own)
    : draw_(draw),
      link_(link),
      shunted_(!draw.forwarded && link.ranks > 1),
      stream_(stream),
      in_place_(own.below(3) == 0),
      send_at_(kGuard + own.below(19) * size_of(draw.type)),
      recv_at_(kGuard + own.below(19) * size_of(draw.type)),
      send_(arena_bytes()),
      recv_(arena_bytes()),
      input_(arena_bytes()),
      output_(arena_bytes()) {}

size_t Call::arena_bytes() const { return (kGuard * 3 + bytes() + 15) / 16 * 16; }

void Call::fill(uint64_t round) {
  const uint64_t data = hash_of(draw_.serial, round);
  inputs_ = all_inputs(draw_.type, draw_.count, data % 2 == 0, link_.ranks, data);
  // NCCL adds in another order: with whole numbers that does not show.
  for (size_t r = 0; !shunted_ && r < inputs_.size(); ++r) {
    inputs_[r] = whole_numbers(draw_.type, draw_.op, draw_.count, hash_of(data, r));
  }
  const Bytes& mine = inputs_[static_cast<size_t>(link_.rank)];
  auto* staging = reinterpret_cast<unsigned char*>(input_.words());
  std::memset(staging, kPoison, arena_bytes());
  if (!mine.empty()) std::memcpy(staging + from(), mine.data(), mine.size());
  CU(cuMemsetD8Async(recv_.address(), kPoison, arena_bytes(), stream_));
  CU(cuMemcpyHtoDAsync(sent().address(), staging, arena_bytes(), stream_));
}

void Call::enqueue() const {
  NCCL(ncclAllReduce(sent().at(from()), recv_.at(recv_at_), draw_.count, nccl_type(draw_.type),
                     nccl_op(draw_.op), link_.comm, stream_));
}

void Call::fetch() const {
  CU(cuMemcpyDtoHAsync(output_.words(), recv_.address(), arena_bytes(), stream_));
}

void Call::check() const {
  INFO(name_of(draw_.type, draw_.op, draw_.count)
       << " on communicator " << draw_.link << " of " << link_.ranks << " ranks, "
       << (shunted_ ? "shunted" : "forwarded") << (in_place_ ? ", in place" : ""));
  const auto* got = reinterpret_cast<const unsigned char*>(output_.words());
  for (size_t i = 0; i < arena_bytes(); ++i) {
    if (i == recv_at_) i += bytes();
    if (i < arena_bytes() && got[i] != kPoison) FAIL("byte " << i << " beside the result changed");
  }
  require_same(draw_.type, draw_.op, inputs_, Bytes(got + recv_at_, got + recv_at_ + bytes()));
}

}  // namespace cases::mixed
