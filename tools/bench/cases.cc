#include "tools/bench/cases.h"

#include <algorithm>

namespace shunt::bench {

std::string describe(const Case& c) {
  return std::string(name_of(c.mode)) + " " + bytes_text(c.bytes()) + " " + shunt::name_of(c.type) +
         " " + shunt::name_of(c.op) + " " + name_of(c.place);
}

std::vector<Case> make_cases(const Options& options) {
  std::vector<Case> cases;
  for (const Mode mode : {Mode::kEager, Mode::kGraph}) {
    if (std::ranges::find(options.modes, mode) == options.modes.end()) continue;
    for (const DataType type : options.types) {
      for (const ReduceOp op : options.ops) {
        for (const Place place : options.places) {
          for (const Size& size : options.sizes) {
            const uint64_t count = size.elements ? size.value : size.value / size_of(type);
            if (count == 0 && size.value != 0) continue;
            const Case c{mode, count, type, op, place};
            if (std::ranges::find(cases, c) == cases.end()) cases.push_back(c);
          }
        }
      }
    }
  }
  return cases;
}

}  // namespace shunt::bench
