#include "tools/bench/statistics.h"

#include <cmath>

#include "test/catch.h"

using namespace shunt::bench;

TEST_CASE("median and minimum") {
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(median({5}) == 5);
  CHECK(std::isnan(median({})));
  CHECK(minimum({3, 1, 2}) == 1);
  CHECK(std::isnan(minimum({})));
}

TEST_CASE("the slowest rank counts, sample by sample") {
  CHECK(slowest({{1, 5, 3}, {2, 4, 3}}) == std::vector<double>{2, 5, 3});
  CHECK(slowest({{1, 5}, {2}}) == std::vector<double>{2});
  CHECK(slowest({{1, 5}, {}}).empty());
  CHECK(slowest({}).empty());
}
