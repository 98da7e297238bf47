#include "tools/bench/launcher.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>

#include "tools/bench/board.h"
#include "tools/bench/text.h"
#include "tools/bench/worker_process.h"

namespace shunt::bench {
namespace {

using Clock = std::chrono::steady_clock;

class Running {
 public:
  Running(const Job& job, const Listener& listener)
      : job_(job),
        listener_(listener),
        deadline_(Clock::now() + std::chrono::seconds(job.timeout_s)),
        board_(Board::create(job.options.launch == Launch::kOneThread ? 1 : job.options.ranks)) {
    for (const std::vector<uint32_t>& ranks : ranks_by_worker(job.options)) {
      workers_.push_back(
          start_worker({job.worker, job.ld_preload, job.environment}, ranks, board_.fd()));
      tell(workers_.back(), to_fields(job.options));
    }
    line_->workers = &workers_;
    if (!listener.on_start) return;
    listener.on_start([line = line_](const Fields& message) {
      const std::lock_guard lock(line->mutex);
      if (line->workers == nullptr) return;
      for (WorkerProcess& worker : *line->workers) tell(worker, message);
    });
  }

  ~Running() {
    {
      const std::lock_guard lock(line_->mutex);
      line_->workers = nullptr;
    }
    end_all();
  }

  std::string wait() {
    std::string failure;
    while (failure.empty() && !finished()) {
      if (Clock::now() >= deadline_) {
        failure = "not finished after " + std::to_string(job_.timeout_s) + " s: " + stuck();
      } else {
        failure = step();
      }
    }
    end_all();
    pass_error_lines();
    return failure;
  }

 private:
  // A worker that is gone cannot be told; step() notices its end and says why.
  static void tell(WorkerProcess& worker, const Fields& message) {
    try {
      worker.channel->send(message);
    } catch (const std::system_error&) {
    }
  }

  bool finished() const {
    return std::ranges::all_of(workers_,
                               [](const WorkerProcess& w) { return w.status.has_value(); });
  }

  // Waits a moment for messages and ends of workers; returns what went wrong, or nothing.
  std::string step() {
    std::vector<pollfd> polls;
    for (const WorkerProcess& worker : workers_) {
      // A closed socket is always readable: poll it no more. (poll passes over -1.)
      polls.push_back({worker.channel->closed() ? -1 : worker.channel->fd(), POLLIN, 0});
      polls.push_back({worker.errors.get(), POLLIN, 0});
    }
    constexpr int kMilliseconds = 20;  // how late the end of a worker may be noticed
    poll(polls.data(), polls.size(), kMilliseconds);
    // Ends first, messages second: what a worker said before its end is read before it is judged.
    for (WorkerProcess& worker : workers_) worker.reap();
    pass_error_lines();
    for (uint32_t i = 0; i < workers_.size(); ++i) {
      try {
        for (const Fields& message : workers_[i].channel->drain()) {
          if (std::string failure = handle(i, message); !failure.empty()) return failure;
        }
      } catch (const std::exception& error) {
        return error.what();
      }
    }
    for (const WorkerProcess& worker : workers_) {
      if (worker.status && !(worker.done && *worker.status == 0)) {
        return where(worker) + " " + describe_status(*worker.status);
      }
    }
    return "";
  }

  void pass_error_lines() {
    for (uint32_t i = 0; i < workers_.size(); ++i) {
      for (const std::string& line : workers_[i].drain_errors()) listener_.on_error_line(i, line);
    }
  }

  std::string handle(uint32_t index, const Fields& message) {
    if (message.kind() == "error") return where(workers_[index]) + ": " + message.text("text");
    if (message.kind() == "done") {
      workers_[index].done = true;
    } else if (message.kind() == "id") {
      for (WorkerProcess& worker : workers_) tell(worker, message);
    } else {
      listener_.on_message(index, message);
    }
    return "";
  }

  // "rank 3 (in: graph 4K bfloat16 sum in: check shunt)"
  std::string where(const WorkerProcess& worker) const {
    std::vector<std::string> places;
    for (const uint32_t rank : worker.ranks) {
      places.push_back("rank " + std::to_string(rank) + " (in: " + board_.phase_of(rank) + ")");
    }
    return join(places, "; ");
  }

  // Ranks that wait for others are not to blame, unless all do.
  std::string stuck() const {
    std::string text, waiting;
    for (uint32_t rank = 0; rank < job_.options.ranks; ++rank) {
      std::string line = "\n  rank " + std::to_string(rank) + " in: " + board_.phase_of(rank);
      (board_.is_waiting(rank) ? waiting : text) += line;
    }
    return text + waiting;
  }

  void end_all() {
    for (WorkerProcess& worker : workers_) worker.kill_and_reap();
  }

  const Job& job_;
  const Listener& listener_;
  const Clock::time_point deadline_;
  Board board_;
  std::vector<WorkerProcess> workers_;

  struct Line {  // what a Tell holds, which may be called after the job has ended
    std::mutex mutex;
    std::vector<WorkerProcess>* workers;
  };
  const std::shared_ptr<Line> line_ = std::make_shared<Line>();
};

}  // namespace

std::vector<std::vector<uint32_t>> ranks_by_worker(const Options& options) {
  std::vector<std::vector<uint32_t>> ranks;
  for (uint32_t rank = 0; rank < options.ranks; ++rank) {
    if (ranks.empty() || options.launch == Launch::kProcesses) ranks.emplace_back();
    ranks.back().push_back(rank);
  }
  return ranks;
}

std::string run_job(const Job& job, const Listener& listener) {
  return Running(job, listener).wait();
}

}  // namespace shunt::bench
