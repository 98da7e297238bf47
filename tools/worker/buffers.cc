#include "tools/worker/buffers.h"

#include <algorithm>

namespace shunt::bench {
namespace {

uint32_t sets_for(const Options& options, const Case& c) {
  if (options.cold_bytes == 0 || c.bytes() == 0) return 1;
  const uint64_t set_bytes = c.bytes() * (c.place == Place::kInPlace ? 1 : 2);
  const uint64_t calls = c.mode == Mode::kGraph ? options.graph_calls : 20;
  return static_cast<uint32_t>(std::clamp<uint64_t>(options.cold_bytes / set_bytes, 1, calls));
}

void copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, uint64_t bytes) {
  if (bytes != 0) SHUNT_DRIVER(cuMemcpyDtoDAsync(to, from, bytes, stream));
}

std::vector<std::byte> fetch(CUstream stream, CUdeviceptr from, uint64_t bytes) {
  std::vector<std::byte> host(bytes);
  if (bytes == 0) return host;
  SHUNT_DRIVER(cuMemcpyDtoHAsync(host.data(), from, bytes, stream));
  SHUNT_DRIVER(cuStreamSynchronize(stream));
  return host;
}

// Position of the first byte that is not `poison`, or npos.
size_t changed_at(std::span<const std::byte> guard, uint8_t poison) {
  const auto changed =
      std::ranges::find_if(guard, [&](std::byte b) { return b != std::byte{poison}; });
  return changed == guard.end() ? std::string::npos : static_cast<size_t>(changed - guard.begin());
}

}  // namespace

Buffers::Buffers(const Options& options, const Case& c, uint32_t rank)
    : in_place_(c.place == Place::kInPlace),
      bytes_(c.bytes()),
      cold_bytes_(options.cold_bytes),
      sets_(sets_for(options, c)) {
  if (options.misalign) {
    // Element-aligned, different between ranks and between send and receive.
    const uint64_t size = size_of(c.type);
    send_offset_ = size * (rank + 1) % 16;
    receive_offset_ = size * (2 * rank + 3) % 16;
  }
  constexpr uint64_t kAlign = 256;
  slot_ = (kGuard + 16 + bytes_ + kGuard + kAlign - 1) / kAlign * kAlign;
  send_ = allocate(slot_ * (in_place_ ? 1 : sets_));
  receive_ = allocate(slot_ * sets_);
  if (cold_bytes_ != 0) flush_ = allocate(cold_bytes_);
}

const void* Buffers::send(uint32_t set) const {
  return reinterpret_cast<const void*>(in_place_ ? target(set) : source(set));
}

void* Buffers::receive(uint32_t set) const { return reinterpret_cast<void*>(target(set)); }

void Buffers::load(CUstream stream, std::span<const std::byte> input) {
  if (bytes_ == 0) return;
  SHUNT_DRIVER(cuMemcpyHtoDAsync(source(0), input.data(), bytes_, stream));
  for (uint32_t set = 1; set < sets_ && !in_place_; ++set) {
    copy(stream, source(set), source(0), bytes_);
  }
}

void Buffers::prepare(CUstream stream, uint8_t poison) {
  SHUNT_DRIVER(cuMemsetD8Async(receive_.get(), poison, slot_ * sets_, stream));
  for (uint32_t set = 0; set < sets_ && in_place_; ++set) {
    copy(stream, target(set), source(0), bytes_);
  }
  if (cold_bytes_ != 0) SHUNT_DRIVER(cuMemsetD8Async(flush_.get(), poison, cold_bytes_, stream));
}

std::vector<std::byte> Buffers::take(CUstream stream, uint32_t set, uint8_t poison,
                                     std::span<const std::byte> input, std::string& faults) const {
  const std::vector<std::byte> slot = fetch(stream, receive_slot(set), slot_);
  const std::span all(slot);
  const uint64_t begin = kGuard + receive_offset_;
  if (const size_t at = changed_at(all.first(begin), poison); at != std::string::npos) {
    faults += "wrote " + std::to_string(begin - at) + " bytes before the receive buffer; ";
  }
  if (const size_t at = changed_at(all.subspan(begin + bytes_), poison); at != std::string::npos) {
    faults += "wrote " + std::to_string(at) + " bytes after the end of the receive buffer; ";
  }
  if (!in_place_ && !std::ranges::equal(fetch(stream, source(set), bytes_), input)) {
    faults += "changed the send buffer; ";
  }
  const std::span data = all.subspan(begin, bytes_);
  return {data.begin(), data.end()};
}

}  // namespace shunt::bench
