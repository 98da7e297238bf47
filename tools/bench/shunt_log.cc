#include "tools/bench/shunt_log.h"

#include <stdexcept>

#include "tools/bench/text.h"

namespace shunt::bench {

std::optional<Counters> parse_stats(std::string_view line) {
  bool seen = false;
  Counters counters;
  for (std::string word : split(line, ' ')) {
    if (word == "stats" || word == "stats:") seen = true;
    while (word.ends_with(',') || word.ends_with(';')) word.pop_back();
    const size_t equals = word.find('=');
    if (!seen || equals == std::string::npos) continue;
    try {
      counters[word.substr(0, equals)] += parse_number(std::string_view(word).substr(equals + 1));
    } catch (const std::invalid_argument&) {  // not a counter
    }
  }
  if (counters.empty()) return std::nullopt;
  return counters;
}

}  // namespace shunt::bench
