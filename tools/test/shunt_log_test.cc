#include "tools/bench/shunt_log.h"

#include "test/catch.h"

using namespace shunt::bench;

TEST_CASE("counters of a stats line") {
  CHECK(parse_stats("nccl-shunt: stats shunted=123 forwarded=45, mode=push") ==
        Counters{{"shunted", 123}, {"forwarded", 45}});
  CHECK(parse_stats("nccl-shunt[12] info: stats: shunted=1 groups=2") ==
        Counters{{"shunted", 1}, {"groups", 2}});
}

TEST_CASE("other lines") {
  for (const char* line : {"", "shunted=1", "stats", "stats shunted=many",
                           "nccl-shunt: warning: P2P 0 -> 1 is refused, cap=8"}) {
    CAPTURE(line);
    CHECK_FALSE(parse_stats(line));
  }
}
