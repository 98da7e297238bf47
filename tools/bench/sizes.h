// Message sizes as people write them: "8", "4K", "1M", "1G" (powers of 1024) are bytes, "7e" is a
// number of elements (for odd counts of any datatype).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::bench {

struct Size {
  uint64_t value = 0;
  bool elements = false;
  bool operator==(const Size&) const = default;
};

// All throw std::invalid_argument with the offending text.
Size parse_size(std::string_view text);
std::vector<Size> parse_sizes(std::string_view comma_separated);
uint64_t parse_bytes(std::string_view text);  // as parse_size; "7e" is refused

// first, first*factor, first*factor^2, ... up to and including last; factor > 1.
std::vector<Size> sweep(uint64_t first, uint64_t last, double factor);

std::string to_text(Size size);          // parse_size's inverse: "4K", "7e"
std::string bytes_text(uint64_t bytes);  // "4K", "1M", "43008"

}  // namespace shunt::bench
