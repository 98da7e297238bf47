#include "tools/bench/shunt_log.h"

#include "test/catch.h"

using namespace shunt::bench;

TEST_CASE("counters of a stats line") {
  CHECK(parse_stats("nccl-shunt: stats shunted=123 forwarded=45, mode=push") ==
        Counters{{"shunted", 123}, {"forwarded", 45}});
  CHECK(parse_stats("nccl-shunt[12] info: stats: shunted=1 groups=2") ==
        Counters{{"shunted", 1}, {"groups", 2}});
}

TEST_CASE("what the library says of a communicator") {
  Prepared p;
  for (const char* line : {"nccl-shunt[4711] debug: communicator cb3e: 4096 bytes: NCCL 6.20 us, "
                           "one shot 2.49 us, two shots 3.10 us",
                           "nccl-shunt[4711] debug: communicator cb3e: 131072 bytes: NCCL 7.00 us, "
                           "one shot 4.00 us, two shots 3.50 us",
                           "nccl-shunt[4711] info: communicator cb3e of 4 ranks: on, push, cap "
                           "131072 bytes (measured)",
                           "nccl-shunt[4711] debug: communicator cb3e: 128 lanes of 256 threads, "
                           "two shots from 65536 bytes, 8388608 bytes a "
                           "slab, 4096 in host memory, prepared in 312.5 ms"}) {
    CAPTURE(line);
    CHECK(p.add(line));
  }
  CHECK(p.on == true);
  CHECK(p.placement == "push");
  CHECK(p.cap == 131072);
  CHECK(p.cap_source == "measured");
  CHECK(p.two_shot_from == 65536);
  CHECK(p.slab_bytes == 8388608);
  CHECK(p.host_bytes == 4096);
  CHECK(p.prepared_ms == 312.5);
  CHECK(p.times == std::vector<TimedSize>{{4096, 6.2, 2.49, 3.1}, {131072, 7, 4, 3.5}});
  CHECK(p.troubles.empty());

  Prepared fixed;
  CHECK(fixed.add("nccl-shunt[1] info: communicator 1 of 2 ranks: on, host, cap 4096 bytes"));
  CHECK(
      fixed.add("nccl-shunt[1] debug: communicator 1: 1 lanes of 64 threads, one shot, 64 bytes a "
                "slab, 0 in host "
                "memory (reused), prepared in 1.0 ms"));
  CHECK(fixed.cap_source.empty());
  CHECK(fixed.two_shot_from == 0);
  CHECK(fixed.slab_bytes == 64);
  CHECK(fixed.prepared_ms == 1);
}

TEST_CASE("what the library says where it does not shunt") {
  Prepared p;
  CHECK(p.add("nccl-shunt[1] info: communicator 1 of 2 ranks: off: all GPUs are joined by NVLink"));
  CHECK(p.on == false);
  CHECK(p.off_reason == "all GPUs are joined by NVLink");
  CHECK(p.troubles.empty());
  CHECK(p.add(
      "nccl-shunt[1] warning: communicator 1: push does not work: rank 1 (probe): x; trying host"));
  CHECK(p.add("nccl-shunt[1] warning: communicator 1 of 2 ranks: off: rank 1 (memory): none"));
  CHECK(p.add("nccl-shunt[1] error: SHUNT_CAP=\"x\" is not a size"));
  CHECK(p.off_reason == "rank 1 (memory): none");
  CHECK(p.troubles.size() == 3);
  for (const char* line :
       {"", "hello", "nccl-shunt[1] info: NCCL is here", "nccl-shunt[1] stats shunted=1",
        "rank 0 said: nccl-shunt[1] warning: x",
        "nccl-shunt[1] info: communicator 1 of 2 ranks: on, push, cap many bytes"}) {
    CAPTURE(line);
    CHECK_FALSE(p.add(line));
  }
}

TEST_CASE("other lines") {
  for (const char* line : {"", "shunted=1", "stats", "stats shunted=many",
                           "nccl-shunt: warning: P2P 0 -> 1 is refused, cap=8"}) {
    CAPTURE(line);
    CHECK_FALSE(parse_stats(line));
  }
}
