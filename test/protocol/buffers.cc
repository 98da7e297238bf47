#include "test/protocol/buffers.h"

#include <cstring>

namespace sim {
namespace {

constexpr size_t kGuard = 48;
constexpr unsigned char kGuardByte = 0x5c;
constexpr unsigned char kPoison = 0xa7;

size_t place(const Bytes& storage, size_t shift_bytes) {
  const size_t begin = reinterpret_cast<uintptr_t>(storage.data()) + kGuard;
  return (begin + 15) / 16 * 16 - begin + kGuard + shift_bytes;
}

std::string hex(const unsigned char* bytes, uint32_t size) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out;
  for (uint32_t i = size; i-- > 0;) out += {kDigits[bytes[i] >> 4], kDigits[bytes[i] & 15]};
  return out;
}

}  // namespace

Buffers::Buffers(const Call& call, uint32_t send_shift, uint32_t recv_shift, bool in_place)
    : call_(call),
      in_place_(in_place),
      send_(in_place ? 0 : call.bytes() + 2 * kGuard + 32),
      recv_(call.bytes() + 2 * kGuard + 32) {
  send_at_ = place(send_, size_t{send_shift} * size_of(call.type));
  recv_at_ = place(recv_, size_t{recv_shift} * size_of(call.type));
}

void Buffers::prepare(const Bytes& input) {
  std::memset(recv_.data(), kGuardByte, recv_.size());
  if (in_place_) {
    std::memcpy(&recv_[recv_at_], input.data(), input.size());
  } else {
    std::memset(&recv_[recv_at_], kPoison, input.size());
    std::memset(send_.data(), kGuardByte, send_.size());
    std::memcpy(&send_[send_at_], input.data(), input.size());
  }
}

std::string Buffers::check_guards(const Bytes& storage, size_t at) const {
  const size_t end = at + call_.bytes();
  for (size_t i = 0; i < storage.size(); ++i) {
    if ((i < at || i >= end) && storage[i] != kGuardByte) {
      return "guard byte " + std::to_string(static_cast<long>(i) - static_cast<long>(at)) +
             " overwritten";
    }
  }
  return {};
}

std::string Buffers::check(const Bytes& input, const Bytes& expected, Demand demand) const {
  std::string wrong = check_guards(recv_, recv_at_);
  if (wrong.empty() && !in_place_) {
    wrong = check_guards(send_, send_at_);
    if (wrong.empty() && std::memcmp(&send_[send_at_], input.data(), input.size()) != 0) {
      wrong = "send buffer changed";
    }
  }
  if (!wrong.empty()) return wrong;
  const uint32_t size = size_of(call_.type);
  unsigned char poison[8];
  std::memset(poison, kPoison, sizeof(poison));
  for (size_t at = 0; at < expected.size(); at += size) {
    const unsigned char* got = &recv_[recv_at_ + at];
    const bool untouched = std::memcmp(got, in_place_ ? &input[at] : poison, size) == 0;
    if (untouched && demand != Demand::kAll) continue;
    if (demand != Demand::kUntouched && same_element(call_.type, call_.op, got, &expected[at])) {
      continue;
    }
    return "element " + std::to_string(at / size) + " is " + hex(got, size) + ", " +
           (demand == Demand::kUntouched ? "was not to be written"
                                         : "should be " + hex(&expected[at], size)) +
           (untouched ? " (untouched)" : "");
  }
  return {};
}

}  // namespace sim
