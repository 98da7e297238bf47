// kernels/protocol.h: counters, tags, and where packets lie.
#include <set>
#include <vector>

#include "kernels/protocol.h"
#include "test/catch.h"

using namespace shunt;

TEST_CASE("a tag survives packing") {
  for (uint32_t t = 0; t < kDataTypes; ++t) {
    for (uint32_t o = 0; o < kReduceOps; ++o) {
      for (uint32_t number : {1u, 2u, 0xffffffu}) {
        for (uint32_t bytes : {1u, 4096u, 0xfffffffu}) {
          const CallTag tag{number, bytes, static_cast<DataType>(t), static_cast<ReduceOp>(o),
                            protocol_of(static_cast<DataType>(t))};
          const uint64_t word = pack(tag);
          const CallTag back = unpack_tag(word);
          CHECK(word != 0);
          CHECK(back.number == tag.number);
          CHECK(back.bytes == tag.bytes);
          CHECK(back.type == tag.type);
          CHECK(back.op == tag.op);
          CHECK(back.protocol == tag.protocol);
        }
      }
    }
  }
}

TEST_CASE("the tag of several messages says how many, and tells their sizes apart") {
  for (uint32_t messages : {2u, 3u, kMaxMessages}) {
    const CallTag tag{9, 4096, DataType::kFloat32, ReduceOp::kSum, Protocol::kSentinel, messages, 0x1fffff};
    const CallTag back = unpack_tag(pack(tag));
    CHECK(back.number == 9);
    CHECK(back.messages == messages);
    CHECK(back.digest == 0x1fffff);
    CHECK(back.bytes == 0);
    CHECK(back.type == tag.type);
    CHECK(back.op == tag.op);
    CHECK(back.protocol == tag.protocol);
  }
  // No two of these lists look the same, and none looks like a single message.
  std::set<uint64_t> words;
  size_t lists = 0;
  for (uint32_t a = 4; a <= 256; a += 4) {
    words.insert(pack({1, a, DataType::kFloat32, ReduceOp::kSum, Protocol::kSentinel}));
    ++lists;
    for (uint32_t b = 4; b <= 256; b += 4) {
      const uint32_t digest = add_to_digest(add_to_digest(0, a), b);
      words.insert(pack({1, a + b, DataType::kFloat32, ReduceOp::kSum, Protocol::kSentinel, 2, digest}));
      ++lists;
    }
  }
  CHECK(lists - words.size() <= 8);  // 21 bits: 4096 lists may meet a few times
}

TEST_CASE("fields of a tag that are too large stay out of the others") {
  const CallTag tag{0x1000001, 0x10000002, DataType::kBfloat16, ReduceOp::kAvg,
                    Protocol::kSentinel};
  const CallTag back = unpack_tag(pack(tag));
  CHECK(back.number == 1);
  CHECK(back.bytes == 2);
  CHECK(back.type == tag.type);
  CHECK(back.op == tag.op);
  CHECK(back.protocol == tag.protocol);
}

TEST_CASE("parts go in turn across every edge, and no call has the flag of a wiped packet") {
  for (uint32_t parts : {2u, 4u}) {
    for (uint32_t base : {kFirstCounter, kFlagPeriod - 10, 0x80000000u - 10, 0u - 10}) {
      uint32_t counter = base;
      for (int i = 0; i < 40; ++i) {
        const uint32_t next = next_counter(counter);
        CHECK(next != 0);
        CHECK(part_of(next, parts) == (part_of(counter, parts) + 1) % parts);
        counter = next;
      }
    }
  }
}

TEST_CASE("each part's flags are zeroed once in every period of the counter") {
  for (uint32_t parts : {2u, 4u}) {
    std::vector<uint32_t> times(parts, 0);
    uint32_t counter = kFlagPeriod - 5;
    for (uint32_t i = 0; i < kFlagPeriod; ++i) {
      if (zeroes_flags(counter, parts)) ++times[part_of(counter, parts)];
      counter = next_counter(counter);
    }
    CHECK(times == std::vector<uint32_t>(parts, 1));
  }
}

TEST_CASE("peers are numbered in rank order") {
  for (uint32_t ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      uint32_t index = 0;
      for (uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        CHECK(peer_index(rank, peer) == index);
        CHECK(peer_at(rank, index) == peer);
        ++index;
      }
    }
  }
}

TEST_CASE("no two lanes, parts, protocols or mailboxes share a packet") {
  for (const Geometry g :
       {Geometry{2, 1, 2, 32, 32}, Geometry{5, 3, 2, 86, 43}, Geometry{16, 7, 4, 64, 32}}) {
    std::vector<uint8_t> used(g.slab_bytes() / kPacketBytes, 0);
    const auto take = [&](size_t offset, size_t packets) {
      REQUIRE(offset % kPacketBytes == 0);
      for (size_t p = offset / kPacketBytes; packets-- != 0; ++p) {
        REQUIRE(p < used.size());
        REQUIRE(used[p]++ == 0);
      }
    };
    take(Geometry::kStopOffset, 1);
    take(Geometry::kLaneOffset, g.lanes);
    for (uint32_t peer = 0; peer + 1 < g.ranks; ++peer) {
      for (uint32_t part = 0; part < g.parts; ++part) {
        const size_t base = g.mailbox_offset(peer) + part * g.part_bytes();
        for (uint32_t lane = 0; lane < g.lanes; ++lane) {
          take(base + lane * kPacketBytes, 1);
          take(base + g.flagged_offset() + size_t{lane} * g.flagged_packets * kPacketBytes,
               g.flagged_packets);
          take(base + g.sentinel_offset() + size_t{lane} * g.sentinel_packets * kPacketBytes,
               g.sentinel_packets);
        }
      }
    }
  }
}
