#include "tools/worker/graph_timer.h"

namespace shunt::bench {

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
  for (uint32_t replay = 0; replay < total; ++replay) {
    prepare();
    team.meet();
    team.each([&](size_t i, Member& member) {
      SHUNT_DRIVER(cuEventRecord(begins[i][replay].get(), member.stream.get()));
    });
    team.launch(graphs);
    team.each([&](size_t i, Member& member) {
      SHUNT_DRIVER(cuEventRecord(ends[i][replay].get(), member.stream.get()));
    });
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
