// The last calls as ranks compare them.
#include "shim/engine/call_ring.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "test/catch.h"

namespace shunt {
namespace {

constexpr int kFloat = 7, kBfloat16 = 9, kSum = 0, kMax = 2;

TEST_CASE("calls are told in their order, each as shunted or forwarded") {
  CallRing ring;
  CHECK(ring.text() == "0 all-reduces, the last ones: ");
  ring.add(4096, kFloat, kSum, true);
  ring.add(262144, kBfloat16, kMax, false);
  ring.add(8, kFloat, 5, false);
  ring.add(8, 77, kSum, false);
  ring.add(16, kFloat, kSum, true);
  CHECK(ring.text() ==
        "5 all-reduces, the last ones: 1: 4096 float sum shunted as 1, 2: 262144 bfloat16 max forwarded, "
        "3: 8 float operation 5 forwarded, 4: 8 type 77 sum forwarded, 5: 16 float sum shunted as 2");
  CHECK(ring.text(1) == "5 all-reduces, the last ones: 5: 16 float sum shunted as 2");
}

TEST_CASE("the last ones stay, and fit a line") {
  CallRing ring;
  for (uint64_t call = 1; call <= 1000; ++call) ring.add(call, kFloat, kSum, call % 2 == 0);
  const std::string text = ring.text();
  CHECK(text.starts_with("1000 all-reduces, the last ones: 937: 937 float sum forwarded, 938: 938 "));
  CHECK(text.ends_with("1000: 1000 float sum shunted as 500"));
  CHECK(text.size() < 4000);
}

// What is read while it is written is whole.
TEST_CASE("a reader meets no half of an entry") {
  CallRing ring;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t call = 1; !stop; ++call) ring.add(call, static_cast<int>(call % 10), kSum, true);
  });
  size_t wrong = 0, seen = 0;
  for (int look = 0; look < 300; ++look) {
    const std::string text = ring.text();
    for (size_t at = text.find(": ", text.find("ones: ") + 6); at != std::string::npos;
         at = text.find(": ", at + 2)) {
      const size_t from = text.rfind(' ', at - 1) + 1;
      const std::string call = text.substr(from, at - from);
      ++seen;
      wrong += !text.substr(at + 2).starts_with(call + " ");
      const size_t as = text.find("as ", at);
      wrong += as == std::string::npos || !text.substr(as + 3).starts_with(call);
    }
    std::this_thread::yield();
  }
  stop = true;
  writer.join();
  CHECK(wrong == 0);
  CHECK(seen > 0);
}

TEST_CASE("an entry costs less than 20 ns") {
  const auto ring = std::make_unique<CallRing>();
  double best = 1e9;
  for (int turn = 0; turn < 20; ++turn) {
    constexpr int kAdds = 100000;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kAdds; ++i) ring->add(4096, kFloat, kSum, true);
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / kAdds);
  }
  INFO(best << " ns");
  CHECK(best < 20);
  WARN(best << " ns an entry");
}

}  // namespace
}  // namespace shunt
