// The toolkit's conversions are the outside source.
#include "tools/bench/floats.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "test/catch.h"

using namespace shunt;
using namespace shunt::bench;

namespace {

double toolkit_value(DataType type, uint16_t bits) {
  switch (type) {
    case DataType::kFloat16:
      return static_cast<double>(__half2float(__half(__half_raw{bits})));
    case DataType::kBfloat16:
      return static_cast<double>(__bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits})));
    case DataType::kFloat8e4m3: {
      __nv_fp8_e4m3 value;
      value.__x = static_cast<__nv_fp8_storage_t>(bits);
      return static_cast<double>(float(value));
    }
    default: {
      __nv_fp8_e5m2 value;
      value.__x = static_cast<__nv_fp8_storage_t>(bits);
      return static_cast<double>(float(value));
    }
  }
}

}  // namespace

TEST_CASE("every value of the small types is what the toolkit says") {
  for (const DataType type :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2}) {
    const FloatFormat format = format_of(type);
    uint64_t wrong = 0;
    double largest = 0, smallest = 1;
    for (uint32_t bits = 0; bits < uint32_t{1} << format.bits; ++bits) {
      const double ours = decode(format, bits);
      const double theirs = toolkit_value(type, static_cast<uint16_t>(bits));
      const bool same = std::isnan(ours)
                            ? std::isnan(theirs)
                            : ours == theirs && std::signbit(ours) == std::signbit(theirs);
      wrong += !same;
      if (std::isfinite(ours)) largest = std::max(largest, ours);
      if (ours > 0) smallest = std::min(smallest, ours);
    }
    CAPTURE(name_of(type));
    CHECK(wrong == 0);
    CHECK(largest == format.largest());
    CHECK(smallest == format.smallest());
    CHECK(decode(format, encode_exact(format, 1)) == 1);
    CHECK(decode(format, encode_exact(format, 1 + 2 * format.unit_roundoff())) ==
          1 + 2 * format.unit_roundoff());
  }
}

TEST_CASE("float and double are the machine's own") {
  for (const double value : {0.0, 1.0, -2.5, 1e-40, 3.4e38}) {
    const auto single = static_cast<float>(value);
    uint32_t bits32;
    uint64_t bits64;
    std::memcpy(&bits32, &single, sizeof bits32);
    std::memcpy(&bits64, &value, sizeof bits64);
    CHECK(decode(format_of(DataType::kFloat32), bits32) == static_cast<double>(single));
    CHECK(decode(format_of(DataType::kFloat64), bits64) == value);
  }
}
