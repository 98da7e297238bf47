// Starts the ranks of a job as processes of their own and reads what they and the library said. A test
// program is its own launcher: job NAME is its hidden test case "job: NAME", run by fork and exec with the
// shipped library preloaded on the emulated driver and NCCL.
#pragma once

#include <csignal>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "test/cases/shared.h"

namespace cases {

using Environment = std::map<std::string, std::string>;  // "(unset)" removes a variable

struct JobOptions {
  int ranks = 2;
  Environment environment = {};
  std::function<Environment(int)> of_rank = {};  // over `environment`
  bool preload = true;
  int limit_seconds = 100;  // a rank that lives longer is ended by SIGALRM
};

// Whether jobs run on two real GPUs with the real driver and NCCL (CASES_ON_GPUS is set; see
// test/gpu/cases.py). What a job asks of the emulator (EMU_*) is then left out.
bool on_gpus();
bool on_one_gpu();  // ONE_GPU too: two ranks share the first GPU
// Of these numbers of ranks, those for which there are GPUs: on real ones, two.
std::vector<int> numbers_of_ranks(std::initializer_list<int> wanted);

class Job {
 public:
  explicit Job(const std::string& name, JobOptions options = {});
  ~Job();  // kills what still runs
  Job(const Job&) = delete;

  int ranks() const { return static_cast<int>(processes_.size()); }
  Shared& shared() const { return *shared_; }
  pid_t pid(int rank) const { return processes_[static_cast<size_t>(rank)].pid; }
  void signal(int rank, int number = SIGKILL) const;
  bool running(int rank);
  // False if it had to be killed after `seconds`.
  bool wait(int rank, double seconds);
  bool wait_all(double seconds);
  // Exit status, 128 + signal, or -1 while it runs.
  int status(int rank) const { return processes_[static_cast<size_t>(rank)].status; }
  std::string output(int rank) const;  // stdout and stderr so far
  std::string output() const;
  // Empty if all ranks end with status 0 in time, else what is wrong and all output.
  std::string trouble(double seconds = 60);

 private:
  struct Process {
    pid_t pid = -1;
    int output = -1;
    int status = -1;
  };
  std::vector<Process> processes_;
  Shared* shared_ = nullptr;
  int shared_file_ = -1;
};

// The sum of a counter ("shunted", "forwarded") over all stats lines.
unsigned long long total(const std::string& output, const std::string& key);
// The library's lines of one level ("info", "warning", "error") that contain all words.
std::vector<std::string> lines_of(const std::string& output, const std::string& level,
                                  const std::vector<std::string>& words = {});
size_t count_of(const std::string& text, const std::string& part);
std::string read_file(const std::string& path);

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace cases
