// Order among captures, on a driver of the test's own: who waits for whose event.
#include "shim/engine/stream_order.h"

#include <map>

#include "test/catch.h"

namespace shunt {
namespace {

struct Driver {
  std::map<cu::Stream, unsigned long long> captures;  // of streams that are capturing
  std::map<cu::Event, cu::Stream> records;            // on which stream it was recorded last
  std::vector<std::pair<cu::Stream, cu::Stream>> waits;
  uintptr_t events = 0, destroyed = 0;
};
Driver* driver = nullptr;

cu::Stream stream(uintptr_t number) { return reinterpret_cast<cu::Stream>(number); }

cu::Api fake_api() {
  cu::Api api;
  api.capture_info = [](cu::Stream s, int* status, unsigned long long* id, cu::Graph*, const void**, size_t*) {
    const auto found = driver->captures.find(s);
    *status = found != driver->captures.end() ? cu::kCaptureActive : cu::kCaptureNone;
    if (found != driver->captures.end()) *id = found->second;
    return cu::kSuccess;
  };
  api.stream_id = [](cu::Stream s, unsigned long long* id) {
    *id = reinterpret_cast<uintptr_t>(s);
    return cu::kSuccess;
  };
  api.capture_mode_exchange = [](int*) { return cu::kSuccess; };
  api.event_create = [](cu::Event* event, unsigned) {
    *event = reinterpret_cast<cu::Event>(++driver->events);
    return cu::kSuccess;
  };
  api.event_destroy = [](cu::Event) {
    ++driver->destroyed;
    return cu::kSuccess;
  };
  api.event_record = [](cu::Event event, cu::Stream s) {
    driver->records[event] = s;
    return cu::kSuccess;
  };
  api.stream_wait_event = [](cu::Stream s, cu::Event event, unsigned) {
    driver->waits.emplace_back(s, driver->records.at(event));
    return cu::kSuccess;
  };
  return api;
}

// Streams 1, 2, ...; an operation on one, in whatever capture it is part of.
struct Scene {
  Scene() {
    driver = &fake;
    order.open();
  }
  void capture(uintptr_t on, unsigned long long id) { fake.captures[stream(on)] = id; }
  void end(unsigned long long id) {
    std::erase_if(fake.captures, [&](const auto& entry) { return entry.second == id; });
  }
  cu::Result operation(uintptr_t on) {
    StreamOrder::Place place;
    fake.waits.clear();
    const cu::Result result = order.before(stream(on), place);
    return result != cu::kSuccess ? result : order.after(stream(on), place, StreamOrder::By::kShunt);
  }
  // What the last operation waited for; 0: for nothing.
  uintptr_t waited() const { return fake.waits.empty() ? 0 : reinterpret_cast<uintptr_t>(fake.waits[0].second); }

  Driver fake;
  StreamOrder order;
};

}  // namespace

namespace cu {
const Api& api() {
  static const Api fake = fake_api();
  return fake;
}
std::string error_text(const char* function, Result) { return function; }
}  // namespace cu

TEST_CASE("each of many captures keeps its order, whatever comes between") {
  for (const uintptr_t captures : {2, 5, 200}) {
    Scene scene;
    for (uintptr_t i = 0; i < captures; ++i) {
      scene.capture(2 * i + 1, 100 + i);
      scene.capture(2 * i + 2, 100 + i);
    }
    for (int call = 0; call < 5; ++call) {
      for (uintptr_t i = 0; i < captures; ++i) {
        REQUIRE(scene.operation(2 * i + 1 + call % 2) == cu::kSuccess);
        CHECK(scene.waited() == (call == 0 ? 0 : 2 * i + 1 + (call - 1) % 2));
      }
    }
  }
}

TEST_CASE("events serve one capture after the other") {
  Scene scene;
  const uintptr_t before = scene.fake.events;
  for (unsigned long long id = 1; id <= 500; ++id) {
    scene.capture(1, id);
    scene.capture(2, id);
    CHECK(scene.operation(1) == cu::kSuccess);
    CHECK(scene.waited() == 0);  // never for an event of another capture
    CHECK(scene.operation(2) == cu::kSuccess);
    CHECK(scene.waited() == 1);
    scene.end(id);
    CHECK(scene.operation(3) == cu::kSuccess);
    CHECK(scene.waited() == 0);  // nor an eager one for one of a capture
  }
  CHECK(scene.fake.events == before);
  scene.order.close();
  CHECK(scene.fake.destroyed == scene.fake.events);
}

// Streams that are never met again do not tell that their capture has ended.
TEST_CASE("with more captures than can be kept, the call fails and no order is lost") {
  Scene scene;
  constexpr uintptr_t kCaptures = 1000;
  for (uintptr_t i = 1; i <= kCaptures; ++i) {
    scene.capture(i, i);
    scene.capture(kCaptures + i, i);
    REQUIRE(scene.operation(i) == cu::kSuccess);
    CHECK(scene.waited() == 0);
  }
  CHECK(scene.fake.events < 300);
  size_t right = 0, refused = 0;
  for (uintptr_t i = kCaptures; i > 0; --i) {
    const cu::Result result = scene.operation(kCaptures + i);
    if (result != cu::kSuccess) {
      ++refused;
    } else if (scene.waited() == i) {
      ++right;
    }
  }
  CHECK(right >= 250);
  CHECK(right + refused == kCaptures);
}

}  // namespace shunt
