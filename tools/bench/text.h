// Lists and numbers in text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::bench {

// "a,b,c" -> {"a", "b", "c"}; empty parts are kept, so that the caller can refuse them.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// Decimal digits only; throws std::invalid_argument with the offending text.
uint64_t parse_number(std::string_view text);

}  // namespace shunt::bench
