// What a profile may not be, whatever it says: looked for before a document is made of it.
#pragma once

#include <string>
#include <string_view>

namespace shunt::tuner {

// Empty: well-formed JSON, not nested deeply, not too many values, no key twice in an object (of
// two, one reader takes the first and another the last). Else why not, in one line.
std::string json_fault(std::string_view text);

// Printable ASCII, everything else as '?', cut off after `most` characters: for log lines.
std::string printable(std::string_view text, size_t most = 120);

}  // namespace shunt::tuner
