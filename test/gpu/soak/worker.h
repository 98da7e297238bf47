// One rank of the soak: random all-reduces on two communicators and three streams, eager, in groups
// and in graphs of many, every output checked; communicators and graphs made anew now and then.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "test/gpu/soak/data.h"
#include "test/gpu/soak/item.h"
#include "test/gpu/soak/plan.h"
#include "tools/bench/board.h"
#include "tools/bench/channel.h"
#include "tools/worker/team.h"

namespace shunt::soak {

class Worker {
 public:
  Worker(const Settings& settings, bench::Board& board, bench::Channel& channel, uint32_t rank,
         uint32_t device);
  void run();

 private:
  static constexpr uint32_t kGraphs = 4;
  static constexpr uint64_t kEagerBytes = 8 << 20;   // of the outputs of eager calls at a stretch
  static constexpr uint64_t kGraphBytes = 32 << 20;  // likewise of a graph
  static constexpr uint32_t kEager = 3;              // stretches of eager calls in a round
  static constexpr uint32_t kWrongTold = 10;         // in full; more are counted

  struct Captured {
    Arena arena;
    std::unique_ptr<Item> item;
    bench::GraphExec graph;
  };
  // Calls made, of all ways; those of a graph count at each replay.
  struct Counts {
    uint64_t eager = 0, grouped = 0, replayed = 0;
    uint64_t up_to_cap = 0, above_cap = 0;  // executed
    uint64_t asked_up_to_cap = 0,
             asked_above_cap = 0;  // calls of ncclAllReduce: once for each capture
    uint64_t graphs = 0, communicators = 0, rounds = 0, wrong = 0;

    uint64_t calls() const { return eager + grouped + replayed; }
  };

  void round();
  bool finished();
  void renew();  // communicators and graphs
  void make_communicators();
  void destroy_communicators();
  void forget_graphs();
  void capture(uint32_t which);
  void enqueue(const Item& item);
  void fork();  // the other streams go on behind the first one
  void join();  // and the reverse
  void count(const Item& item, bool replayed);
  void check(const std::vector<const Item*>& items);
  void pause();
  void report_memory();
  void report(const char* kind);
  void synchronize();
  double elapsed() const;
  void phase(const std::string& text) { board_.set_phase(rank_, text); }

  const Settings settings_;
  bench::Board& board_;
  bench::Channel& channel_;
  const uint32_t rank_;
  const bench::PrimaryContext context_;
  const std::vector<DataType> types_;
  std::unique_ptr<Data> data_;
  std::unique_ptr<Inputs> inputs_;
  std::array<bench::Stream, kStreams> streams_;
  bench::Event fork_;
  std::array<bench::Event, kStreams> joins_;
  std::array<ncclComm_t, kCommunicators> communicators_{};
  std::array<Captured, kGraphs> captured_;
  std::array<Arena, kEager> eager_;
  sim::Rng all_, own_;
  Counts counts_;
  uint64_t window_ = 0;
  uint32_t wrong_told_ = 0;
  uint64_t renewed_at_ = 0;  // calls
  std::chrono::steady_clock::time_point begun_, told_;
};

}  // namespace shunt::soak
