#include "tools/tune/explore.h"

#include <algorithm>
#include <stdexcept>

#include "plugin/abi.h"
#include "tools/bench/statistics.h"

namespace shunt::tune {
namespace {

namespace abi = tuner::abi;

constexpr double kHopeless = 4;  // times the best at the next smaller size
constexpr double kClose = 1.3;   // times the best here: worth trying with other channels
constexpr int kChannelCounts[] = {1, 2, 4, 8, 16, 24, 32};
// NCCL gives a channel no less than 16 KiB (MinTrafficPerChannel in src/enqueue.cc).
constexpr uint64_t kFewestBytesForChannels = 32 * 1024;

class Explorer {
 public:
  Explorer(const Measure& measure, Point& point, const Point* smaller, const Limits& limits)
      : measure_(measure), point_(point), smaller_(smaller), limits_(limits) {
    calls_ = calls_for(smaller != nullptr ? smaller->default_us : 5);
  }

  void run() {
    const Outcome own = measure_(make({}));
    if (own.status == Status::kUnasked) {
      throw std::runtime_error(
          "NCCL has not asked the tuner: it is older than 2.22, or NCCL_TUNER_PLUGIN is "
          "overridden");
    }
    if (!own.problem.empty()) throw std::runtime_error("NCCL's own choice: " + own.problem);
    point_.default_wish = own.cheapest;
    point_.default_us = own.us;
    calls_ = calls_for(own.us);
    candidates_ = {{own.us, {}}};
    for (const Wish& wish : entries(own.allowed)) try_one(wish);
    try_channels();
    std::ranges::sort(candidates_, {}, &Candidate::us);
    const Candidate& best = candidates_.front();
    if (!best.wish.empty() && best.us < point_.default_us * (1 - limits_.margin))
      confirm(best.wish);
  }

 private:
  struct Candidate {
    double us;
    Wish wish;
  };

  Try make(const Wish& wish) const {
    Try t;
    t.collective = point_.collective;
    t.bytes = point_.bytes;
    t.wish = wish;
    t.calls = calls_;
    t.unsafe = limits_.unsafe;
    return t;
  }

  std::vector<Wish> entries(uint64_t allowed) const {
    std::vector<Wish> wishes;
    for (int a = 0; a < abi::kAlgorithms; ++a) {
      for (int p = 0; p < abi::kProtocols; ++p) {
        const bool offered = (allowed >> (a * abi::kProtocols + p) & 1) != 0;
        const bool unsafe = limits_.unsafe && p == abi::kLl128 && a <= abi::kRing;
        const Wish wish{a, p, 0};
        if ((offered || unsafe) && wish != point_.default_wish && !hopeless(wish)) {
          wishes.push_back(wish);
        }
      }
    }
    return wishes;
  }

  bool hopeless(const Wish& wish) const {
    if (smaller_ == nullptr) return false;
    const auto there = smaller_->tried.find(to_text(wish));
    const double best = smaller_->best.empty() ? smaller_->default_us : smaller_->best_us;
    return there != smaller_->tried.end() && there->second > kHopeless * best;
  }

  void try_one(const Wish& wish) {
    if (limits_.out_of_time()) return;
    const Outcome outcome = measure_(make(wish));
    if (outcome.status != Status::kMeasured) return;
    if (!outcome.problem.empty()) {
      point_.problems.push_back(to_text(wish) + ": " + outcome.problem);
      return;
    }
    point_.tried[to_text(wish)] = outcome.us;
    candidates_.push_back({outcome.us, wish});
  }

  // Of the two best entries, if the second is close.
  void try_channels() {
    if (point_.bytes < kFewestBytesForChannels) return;
    std::vector<Candidate> bases = candidates_;
    std::ranges::sort(bases, {}, &Candidate::us);
    const double best = bases.front().us;
    for (size_t i = 0; i < std::min<size_t>(2, bases.size()); ++i) {
      Wish wish = bases[i].wish.empty() ? point_.default_wish : bases[i].wish;
      const bool collnet =
          wish.algorithm == abi::kCollnetDirect || wish.algorithm == abi::kCollnetChain;
      if (bases[i].us > kClose * best || wish.empty() || collnet) continue;
      for (const int channels : kChannelCounts) {
        wish.channels = channels;
        try_one(wish);
      }
    }
  }

  void confirm(const Wish& wish) {
    std::vector<double> best, own;
    const auto again = [&](const Wish& which) {
      Try t = make(which);
      t.warmups = 2;
      t.replays = 7;
      const Outcome outcome = measure_(t);
      if (!outcome.problem.empty())
        point_.problems.push_back(to_text(which) + ": " + outcome.problem);
      return outcome.us;
    };
    const size_t problems = point_.problems.size();
    for (int round = 0; round < 3; ++round) {
      best.push_back(again(wish));
      own.push_back(again({}));
      if (best.back() >= own.back() || point_.problems.size() != problems) return;
    }
    point_.best_us = bench::median(best);
    point_.default_us = bench::median(own);
    if (point_.best_us < point_.default_us * (1 - limits_.margin)) point_.best = wish;
  }

  const Measure& measure_;
  Point& point_;
  const Point* smaller_;
  const Limits& limits_;
  uint32_t calls_;
  std::vector<Candidate> candidates_;
};

}  // namespace

uint32_t calls_for(double us) {
  constexpr double kGraphUs = 1500;
  return static_cast<uint32_t>(std::clamp(kGraphUs / std::max(us, 0.1), 1.0, 50.0));
}

Point explore(const Measure& measure, Collective collective, uint64_t bytes, const Point* smaller,
              const Limits& limits) {
  Point point;
  point.collective = collective;
  point.bytes = bytes;
  Explorer(measure, point, smaller, limits).run();
  if (point.best.empty()) point.best_us = point.default_us;
  return point;
}

}  // namespace shunt::tune
