// The profile as a file's text; FORMAT.md describes it.
#pragma once

#include <string>
#include <string_view>

#include "plugin/profile.h"

namespace shunt::tuner {

inline constexpr size_t kMaxProfileText = size_t{1} << 20;  // bytes
inline constexpr int kProfileVersion = 1;

// Throws std::runtime_error with one printable line that says where and what is wrong. Whatever the
// text is: it takes time and memory in proportion to its length, and no deep recursion.
Profile parse_profile(std::string_view text);

// Ends with a line end. Throws std::runtime_error if parse_profile would refuse the result.
std::string to_json(const Profile& profile);

}  // namespace shunt::tuner
