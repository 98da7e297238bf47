#include "tools/tune/session.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "plugin/profile_json.h"
#include "tools/bench/statistics.h"

namespace shunt::tune {
namespace {

using bench::Fields;

class Session {
 public:
  using Search = std::function<void(const Measure&, const SessionFacts&)>;

  Session(uint32_t ranks, const Search& search) : ranks_(ranks), search_(search) {}

  // Of the launcher's thread.
  void start(bench::Tell tell) {
    tell_ = std::move(tell);
    thread_ = std::thread([this] { run_search(); });
  }
  void message(const Fields& message) {
    const std::lock_guard lock(mutex_);
    if (message.kind() == "machine") {
      add_machine(tuner::parse_profile(message.text("profile")).machine);
    } else if (message.kind() == "tried") {
      answers_.push_back(tried_from(message));
    }  // others (facts, gpu) are a benchmark's
    changed_.notify_all();
  }
  // The job is over: whoever waits for it gives up. Returns what the search threw.
  std::string end() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
    return failure_;
  }

 private:
  struct Over {};

  void add_machine(tuner::Fingerprint machine) {
    if (ready_ > 0 && machine != facts_.machine) {
      throw std::runtime_error("the ranks see different machines: " +
                               difference(machine, facts_.machine));
    }
    facts_.machine = std::move(machine);
    ++ready_;
  }

  void run_search() {
    try {
      wait([this] { return ready_ == ranks_; });
      search_([this](const Try& t) { return measure(t); }, facts_);
    } catch (const Over&) {  // run_job says why
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
    tell_(Fields("stop"));
  }

  Outcome measure(const Try& t) {
    tell_(to_fields(t));
    wait([this] { return answers_.size() == ranks_; });
    const std::lock_guard lock(mutex_);
    return together(std::exchange(answers_, {}));
  }

  template <typename F>
  void wait(F&& what) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_ || what(); });
    if (!what()) throw Over{};
  }

  const uint32_t ranks_;
  const Search& search_;
  bench::Tell tell_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  SessionFacts facts_;
  uint32_t ready_ = 0;
  bool over_ = false;
  std::vector<Tried> answers_;
  std::string failure_;
};

}  // namespace

Outcome together(std::vector<Tried> answers) {
  if (answers.empty()) throw std::runtime_error("no rank has answered");
  std::ranges::sort(answers, {}, &Tried::rank);
  Outcome outcome{answers[0].status, 0, "", answers[0].cheapest, answers[0].allowed};
  std::vector<std::vector<double>> samples;
  for (const Tried& tried : answers) {
    // What NCCL asks and offers is the same on all ranks; if not, they run different kernels.
    if (tried.status != outcome.status || tried.cheapest != outcome.cheapest ||
        tried.allowed != outcome.allowed) {
      throw std::runtime_error("NCCL's costs differ between ranks");
    }
    if (!tried.problem.empty() && outcome.problem.empty()) {
      outcome.problem = "rank " + std::to_string(tried.rank) + ": " + tried.problem;
    }
    samples.push_back(tried.us);
  }
  outcome.us = bench::median(bench::slowest(samples));
  return outcome;
}

std::string run_session(const bench::Job& job,
                        const std::function<void(const Measure&, const SessionFacts&)>& search,
                        const std::function<void(uint32_t, const std::string&)>& on_line) {
  Session session(job.options.ranks, search);
  bench::Listener listener;
  listener.on_message = [&](uint32_t, const Fields& message) { session.message(message); };
  listener.on_error_line = on_line;
  listener.on_start = [&](bench::Tell tell) { session.start(std::move(tell)); };
  std::string failure;
  try {
    failure = run_job(job, listener);
  } catch (...) {
    session.end();
    throw;
  }
  const std::string search_failure = session.end();
  return failure.empty() ? search_failure : failure;
}

}  // namespace shunt::tune
