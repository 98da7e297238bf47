#include "tools/bench/fields.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "test/catch.h"

using namespace shunt::bench;

TEST_CASE("fields survive the trip") {
  const std::vector<double> times = {1.0 / 3, 0, 1e-300, 12345.678};
  const std::string line = Fields("result")
                               .set("text", "a=b,c\td\ne")
                               .set("number", std::numeric_limits<uint64_t>::max())
                               .set("real", -0.1)
                               .set("times", times)
                               .set("none", std::vector<double>{})
                               .line();
  CHECK(std::count(line.begin(), line.end(), '\n') == 1);
  const Fields fields = Fields::parse(line);
  CHECK(fields.kind() == "result");
  CHECK(fields.text("text") == "a=b,c d e");
  CHECK(fields.number("number") == std::numeric_limits<uint64_t>::max());
  CHECK(fields.real("real") == -0.1);
  CHECK(fields.reals("times") == times);
  CHECK(fields.reals("none").empty());
}

TEST_CASE("malformed messages are errors") {
  CHECK_THROWS_WITH(Fields::parse("kind\tno equals sign"), ContainsSubstring("malformed"));
  const Fields fields = Fields::parse("kind\ta=1x\tb=-1");
  CHECK_THROWS_WITH(fields.text("c"), ContainsSubstring("lacks the field c"));
  CHECK_THROWS(fields.number("a"));
  CHECK_THROWS(fields.number("b"));
  CHECK_THROWS(fields.reals("a"));
}
