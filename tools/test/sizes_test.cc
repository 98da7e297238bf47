#include "tools/bench/sizes.h"

#include <stdexcept>

#include "test/catch.h"

using namespace shunt::bench;

TEST_CASE("sizes as people write them") {
  CHECK(parse_size("8") == Size{8, false});
  CHECK(parse_size("4K") == Size{4096, false});
  CHECK(parse_size("1m") == Size{1 << 20, false});
  CHECK(parse_size("2G") == Size{uint64_t{2} << 30, false});
  CHECK(parse_size("7e") == Size{7, true});
  CHECK(parse_size("0e") == Size{0, true});
  CHECK(parse_sizes("8,4K") == std::vector<Size>{{8, false}, {4096, false}});
}

TEST_CASE("malformed sizes are refused with their text") {
  for (const char* text : {"", "K", "e", "-3", "+3", "1 MB", "64Q", "4.5K", " 8", "0x10",
                           "99999999999999999999", "17179869184G"}) {
    CAPTURE(text);
    CHECK_THROWS_WITH(parse_size(text), ContainsSubstring("'" + std::string(text) + "'"));
  }
  CHECK_THROWS_AS(parse_sizes("8,,9"), std::invalid_argument);
  CHECK_THROWS_WITH(parse_bytes("7e"), ContainsSubstring("in bytes"));
}

TEST_CASE("sizes are written so that they parse back") {
  for (const char* text : {"8", "4K", "1M", "3G", "43008e", "1000"}) {
    CHECK(to_text(parse_size(text)) == text);
  }
  CHECK(bytes_text(43008) == "42K");
  CHECK(bytes_text(0) == "0");
}

TEST_CASE("a sweep ends at its last size and always grows") {
  CHECK(sweep(8, 32, 2) == std::vector<Size>{{8, false}, {16, false}, {32, false}});
  CHECK(sweep(8, 31, 2) == std::vector<Size>{{8, false}, {16, false}});
  CHECK(sweep(5, 5, 2) == std::vector<Size>{{5, false}});
  CHECK(sweep(1, 4, 1.01).size() == 4);
  CHECK_THROWS_AS(sweep(0, 8, 2), std::invalid_argument);
  CHECK_THROWS_AS(sweep(9, 8, 2), std::invalid_argument);
  CHECK_THROWS_AS(sweep(8, 9, 1), std::invalid_argument);
}
