#include "tools/bench/sizes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "tools/bench/text.h"

namespace shunt::bench {
namespace {

std::invalid_argument malformed(std::string_view text, const char* expected) {
  return std::invalid_argument(std::string("'").append(text).append("' is not ").append(expected));
}

int shift_of(char suffix) {
  switch (suffix) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    default:
      return 0;
  }
}

}  // namespace

Size parse_size(std::string_view text) {
  constexpr const char* kExpected = "a size (8, 4K, 1M, 1G, or 7e for 7 elements)";
  std::string_view digits = text;
  Size size;
  int shift = 0;
  if (!digits.empty()) {
    shift = shift_of(digits.back());
    size.elements = digits.back() == 'e';
    if (shift != 0 || size.elements) digits.remove_suffix(1);
  }
  try {
    size.value = parse_number(digits);
  } catch (const std::invalid_argument&) {
    throw malformed(text, kExpected);
  }
  if (size.value > (std::numeric_limits<uint64_t>::max() >> shift))
    throw malformed(text, kExpected);
  size.value <<= shift;
  return size;
}

std::vector<Size> parse_sizes(std::string_view comma_separated) {
  std::vector<Size> sizes;
  for (const std::string& part : split(comma_separated, ',')) sizes.push_back(parse_size(part));
  return sizes;
}

uint64_t parse_bytes(std::string_view text) {
  const Size size = parse_size(text);
  if (size.elements) throw malformed(text, "a size in bytes");
  return size.value;
}

std::vector<Size> sweep(uint64_t first, uint64_t last, double factor) {
  if (first == 0 || last < first)
    throw std::invalid_argument("--min must be at least 1 and at most --max");
  if (!(factor > 1)) throw std::invalid_argument("--factor must be above 1");
  std::vector<Size> sizes;
  for (uint64_t bytes = first; bytes <= last;) {
    sizes.push_back({bytes, false});
    const double next = std::floor(static_cast<double>(bytes) * factor);
    if (next > static_cast<double>(last)) break;
    bytes = std::max(bytes + 1, static_cast<uint64_t>(next));
  }
  return sizes;
}

std::string bytes_text(uint64_t bytes) {
  constexpr struct {
    int shift;
    char suffix;
  } kUnits[] = {{30, 'G'}, {20, 'M'}, {10, 'K'}};
  for (const auto& unit : kUnits) {
    if (bytes != 0 && bytes % (uint64_t{1} << unit.shift) == 0) {
      return std::to_string(bytes >> unit.shift) + unit.suffix;
    }
  }
  return std::to_string(bytes);
}

std::string to_text(Size size) {
  return size.elements ? std::to_string(size.value) + "e" : bytes_text(size.value);
}

}  // namespace shunt::bench
