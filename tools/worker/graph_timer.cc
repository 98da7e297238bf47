#include "tools/worker/graph_timer.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace shunt::bench {
namespace {

// Holds streams back until the host has enqueued all that is timed: what the GPU does must not wait for a host
// that is still launching.
class Gate {
 public:
  explicit Gate(Team& team) : team_(team) {}
  Gate(const Gate&) = delete;
  ~Gate() {  // a stream must not wait for a host that has given up
    opened_ = UINT32_MAX;
    team_.each([](size_t, Member& member) { cuStreamSynchronize(member.stream.get()); });
  }
  // What the members enqueue from here on runs after open().
  void close() {
    places_.push_back(std::make_unique<Place>(Place{&opened_, static_cast<uint32_t>(places_.size())}));
    team_.each([&](size_t, Member& member) {
      SHUNT_DRIVER(cuLaunchHostFunc(member.stream.get(), &wait, places_.back().get()));
    });
  }
  void open() { opened_ = static_cast<uint32_t>(places_.size()); }

 private:
  struct Place {
    const std::atomic<uint32_t>* opened;
    uint32_t index;
  };
  static void CUDA_CB wait(void* argument) {
    const Place& place = *static_cast<const Place*>(argument);
    while (place.opened->load() <= place.index) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

  Team& team_;
  std::atomic<uint32_t> opened_{0};
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace

std::vector<std::vector<double>> replay_times(Team& team, const std::vector<GraphExec>& graphs,
                                              const Replays& replays,
                                              const std::function<void()>& prepare) {
  const uint32_t total = replays.warmups + replays.counted;
  std::vector<std::vector<Event>> begins(team.size()), ends(team.size());
  team.each([&](size_t i, Member&) {
    for (uint32_t replay = 0; replay < total; ++replay) {
      begins[i].push_back(make_event());
      ends[i].push_back(make_event());
    }
  });
  team.barrier();
  Gate gate(team);
  for (uint32_t replay = 0; replay < total; ++replay) {
    prepare();
    gate.close();
    team.meet();
    team.each([&](size_t i, Member& member) {
      SHUNT_DRIVER(cuEventRecord(begins[i][replay].get(), member.stream.get()));
    });
    team.launch(graphs);
    team.each([&](size_t i, Member& member) {
      SHUNT_DRIVER(cuEventRecord(ends[i][replay].get(), member.stream.get()));
    });
    team.barrier();
    gate.open();
  }
  team.synchronize();
  std::vector<std::vector<double>> times(team.size());
  team.each([&](size_t i, Member&) {
    for (uint32_t replay = replays.warmups; replay < total; ++replay) {
      float milliseconds = 0;
      SHUNT_DRIVER(
          cuEventElapsedTime(&milliseconds, begins[i][replay].get(), ends[i][replay].get()));
      times[i].push_back(double{milliseconds} * 1000 / replays.calls);
    }
    begins[i].clear();  // here, with the GPU current that they belong to
    ends[i].clear();
  });
  return times;
}

}  // namespace shunt::bench
