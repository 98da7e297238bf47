#include "test/gpu/soak/item.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace shunt::soak {
namespace {

std::string difference(const unsigned char* got, const unsigned char* wanted, uint64_t bytes) {
  uint64_t first = bytes, different = 0;
  for (uint64_t i = 0; i < bytes; ++i) {
    if (got[i] == wanted[i]) continue;
    first = std::min(first, i);
    ++different;
  }
  char text[120];
  std::snprintf(text, sizeof text, "%llu bytes differ, first byte %llu: %02x, must be %02x",
                static_cast<unsigned long long>(different), static_cast<unsigned long long>(first),
                got[first], wanted[first]);
  return text;
}

}  // namespace

Inputs::Inputs(const Settings& settings, const Data& data, const std::vector<DataType>& types)
    : types_(types),
      region_bytes_(settings.region_bytes()),
      line_bytes_(data.line_bytes()),
      lines_(bench::allocate(line_bytes_ * kDataTypes)),
      regions_(bench::allocate((region_bytes_ + 32) * kDataTypes)) {
  for (const DataType type : types_) {
    SHUNT_DRIVER(cuMemcpyHtoD(lines_.get() + line_bytes_ * static_cast<uint64_t>(type),
                              data.input(type).data(), line_bytes_));
  }
}

void Inputs::draw_alignment(sim::Rng& own) {
  for (const DataType type : types_) {
    const uint32_t size = size_of(type);
    shifts_[static_cast<size_t>(type)] = own.below(2) == 0 ? 0 : size * own.below(16 / size);
  }
}

CUdeviceptr Inputs::region(DataType type) const {
  return regions_.get() + (region_bytes_ + 32) / 16 * 16 * static_cast<uint64_t>(type) +
         shifts_[static_cast<size_t>(type)];
}

void Inputs::load(CUstream stream, uint64_t window) {
  for (const DataType type : types_) {
    SHUNT_DRIVER(cuMemcpyDtoDAsync(
        region(type), lines_.get() + line_bytes_ * static_cast<uint64_t>(type) + window,
        region_bytes_, stream));
  }
}

CUdeviceptr Inputs::at(const Draw& draw) const { return region(draw.type) + draw.from; }

void Arena::reserve(uint64_t wanted) {
  if (wanted <= bytes) return;
  device = {};
  host = {};
  device = bench::allocate(wanted);
  void* memory = nullptr;
  SHUNT_DRIVER(cuMemHostAlloc(&memory, wanted, 0));
  host = bench::Owned<void*, &cuMemFreeHost>(memory);
  bytes = wanted;
}

Item::Item(std::string name, std::vector<Draw> draws, const Inputs& inputs, Arena& arena)
    : name_(std::move(name)), draws_(std::move(draws)), inputs_(inputs), arena_(arena) {
  for (const Draw& draw : draws_) {
    const uint64_t place = (bytes_ + kGuard + 15) / 16 * 16 + draw.shift;
    places_.push_back(place);
    bytes_ = place + draw.bytes();
  }
  bytes_ += kGuard;
  arena_.reserve(bytes_);
}

const void* Item::input(size_t call) const {
  return draws_[call].in_place ? output(call)
                               : reinterpret_cast<const void*>(inputs_.at(draws_[call]));
}

void Item::poison(CUstream stream, unsigned char value) {
  poison_ = value;
  SHUNT_DRIVER(cuMemsetD8Async(arena_.device.get(), value, bytes_, stream));
}

void Item::copy_inputs(CUstream stream) const {
  for (size_t i = 0; i < draws_.size(); ++i) {
    const Draw& draw = draws_[i];
    if (!draw.in_place || draw.count == 0) continue;
    SHUNT_DRIVER(cuMemcpyDtoDAsync(arena_.device.get() + places_[i], inputs_.at(draw), draw.bytes(),
                                   stream));
  }
}

void Item::fetch(CUstream stream) const {
  SHUNT_DRIVER(cuMemcpyDtoHAsync(arena_.host.get(), arena_.device.get(), bytes_, stream));
}

uint64_t Item::check(const Data& data, uint64_t window,
                     const std::function<void(const std::string&)>& tell) const {
  const auto* image = static_cast<const unsigned char*>(arena_.host.get());
  unsigned char guard[kGuard + 32];
  std::memset(guard, poison_, sizeof guard);
  uint64_t wrong = 0, done = 0;
  // The guard before each output, the output; at last the guard behind all.
  for (size_t i = 0; i <= draws_.size(); ++i) {
    const uint64_t place = i < draws_.size() ? places_[i] : bytes_;
    if (std::memcmp(image + done, guard, place - done) != 0) {
      ++wrong;
      tell(name_ + ", beside the output of " + describe(std::min(i, draws_.size() - 1)) + ": " +
           difference(image + done, guard, place - done));
    }
    if (i == draws_.size()) break;
    const Draw& draw = draws_[i];
    const unsigned char* wanted = data.result(draw.type, draw.op).data() + window + draw.from;
    if (std::memcmp(image + place, wanted, draw.bytes()) != 0) {
      ++wrong;
      tell(name_ + ", " + describe(i) + ": " + difference(image + place, wanted, draw.bytes()));
    }
    done = place + draw.bytes();
  }
  return wrong;
}

std::string Item::describe(size_t call) const {
  const Draw& draw = draws_[call];
  return "call " + std::to_string(call + 1) + " of " + std::to_string(draws_.size()) +
         " (communicator " + std::to_string(draw.communicator) + ", " +
         std::to_string(draw.bytes()) + " bytes, " + name_of(draw.type) + " " + name_of(draw.op) +
         (draw.in_place ? ", in place" : "") + ", stream " + std::to_string(draw.stream) +
         (draw.group != 0 ? ", grouped" : "") + ")";
}

}  // namespace shunt::soak
