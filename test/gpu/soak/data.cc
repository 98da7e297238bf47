#include "test/gpu/soak/data.h"

#include <span>

#include "test/protocol/numbers.h"
#include "tools/bench/inputs.h"

namespace shunt::soak {

Data::Data(const Settings& settings, const std::vector<DataType>& types, uint32_t rank)
    : line_bytes_(4 * settings.region_bytes()) {
  for (const DataType type : types) {
    const bench::Inputs inputs{type, ReduceOp::kSum, bench::Data::kExact, settings.ranks,
                               settings.seed};
    std::vector<Line> all(settings.ranks, Line(line_bytes_));
    for (uint32_t r = 0; r < settings.ranks; ++r) {
      bench::fill(inputs, r, 0, std::as_writable_bytes(std::span(all[r])));
    }
    const auto t = static_cast<size_t>(type);
    for (uint32_t op = 0; op < kReduceOps; ++op) {
      results_[t][op] =
          sim::reduce(type, static_cast<ReduceOp>(op), line_bytes_ / size_of(type), all);
    }
    inputs_[t] = std::move(all[rank]);
  }
}

}  // namespace shunt::soak
