#include "test/cases/job.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <thread>

extern char** environ;

namespace cases {
namespace {

constexpr const char* kUnset = "(unset)";
constexpr int kRealGpus = 2;

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

bool starts_with(const std::string& text, const char* head) { return text.rfind(head, 0) == 0; }

// The build folder may lie elsewhere where the GPUs are.
std::string library(const char* file) {
  return std::filesystem::path(own_path()).parent_path().parent_path() / "lib" / file;
}
std::string preloaded_library() {
  return on_gpus() ? library(std::filesystem::path(CASES_PRELOAD).filename().c_str()) : CASES_PRELOAD;
}

// Two ranks on one GPU, each of which takes it for its own (test/gpu/support.py, one_gpu).
void share_a_gpu(Environment& all, int rank) {
  std::string& preload = all["LD_PRELOAD"];
  if (!preload.empty()) preload += ':';
  preload += library("libfaulty-driver.so");
  all["FAULTY_GPU"] = all["NCCL_HOSTID"] = std::to_string(rank);
  all["NCCL_SOCKET_IFNAME"] = "lo";
}

// The library keeps files in the user's cache: jobs of one launcher share one of their own.
class Cache {
 public:
  Cache() : folder_("shunt-cases-cache") {}
  ~Cache() { std::filesystem::remove_all(folder_.path()); }
  const std::string& path() const { return folder_.path(); }

 private:
  TemporaryFile folder_;
};
const std::string& cache() {
  static const Cache instance;
  return instance.path();
}

// What every rank gets unless the case says otherwise. Settings of the person who runs the tests must not
// change what is tested.
Environment defaults(const JobOptions& options) {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t at = text.find('=');
    const std::string name = text.substr(0, at);
    const bool ours = starts_with(name, "SHUNT_") || starts_with(name, "EMU_") ||
                      starts_with(name, "NCCL_") || starts_with(name, "CUDA_");
    const bool which_gpus = on_gpus() && name == "CUDA_VISIBLE_DEVICES";
    if (at != std::string::npos && (!ours || which_gpus)) all[name] = text.substr(at + 1);
  }
  const bool alone = std::getenv("CASES_WITHOUT_LIBRARY") != nullptr;  // what NCCL itself does
  if (options.preload && !alone) all["LD_PRELOAD"] = preloaded_library();
  if (!on_gpus()) {
    const std::string inherited = all.count("LD_LIBRARY_PATH") ? ":" + all["LD_LIBRARY_PATH"] : "";
    all["LD_LIBRARY_PATH"] = CASES_EMULATOR + inherited;
  }
  all["XDG_CACHE_HOME"] = cache();
  // What is measured on emulated GPUs is chance.
  all.insert({{"SHUNT_ENABLE", "on"}, {"SHUNT_STATS", "1"}, {"SHUNT_CAP", "fixed"}});
  return all;
}

int memory_file(const char* name, bool inherited) {
  const int file = memfd_create(name, inherited ? 0 : MFD_CLOEXEC);
  if (file < 0) throw std::runtime_error("memfd_create");
  return file;
}

}  // namespace

bool on_gpus() { return std::getenv("CASES_ON_GPUS") != nullptr; }
bool on_one_gpu() { return on_gpus() && std::getenv("ONE_GPU") != nullptr; }

std::vector<int> numbers_of_ranks(std::initializer_list<int> wanted) {
  std::vector<int> numbers;
  for (const int ranks : wanted) {
    if (!on_gpus() || ranks <= kRealGpus) numbers.push_back(ranks);
  }
  return numbers;
}

Job::Job(const std::string& name, JobOptions options) {
  if (on_gpus() && options.ranks > kRealGpus) throw std::runtime_error("more ranks than GPUs");
  shared_file_ = memory_file("case-shared", true);
  if (ftruncate(shared_file_, sizeof(Shared)) != 0) throw std::runtime_error("ftruncate");
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, shared_file_, 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap");
  shared_ = static_cast<Shared*>(at);  // all zero, which is how its atomics start

  const std::string program = own_path(), test = "job: " + name;
  for (int rank = 0; rank < options.ranks; ++rank) {
    Environment all = defaults(options);
    const Environment more = options.of_rank ? options.of_rank(rank) : Environment{};
    const Environment* const parts[] = {&options.environment, &more};
    for (const Environment* part : parts) {
      for (const auto& [key, value] : *part) {
        const bool left_out = value == kUnset || (on_gpus() && starts_with(key, "EMU_"));
        if (left_out) all.erase(key);
        if (!left_out) all[key] = value;
      }
    }
    if (on_one_gpu()) share_a_gpu(all, rank);
    all["CASES_RANK"] = std::to_string(rank);
    all["CASES_RANKS"] = std::to_string(options.ranks);
    all["CASES_SHARED"] = std::to_string(shared_file_);
    all["CASES_LIMIT"] = std::to_string(options.limit_seconds);
    std::vector<std::string> texts;
    for (const auto& [key, value] : all) texts.push_back(key + "=" + value);
    std::vector<char*> pointers;
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);

    Process process;
    process.output = memory_file("case-output", false);
    process.pid = fork();
    if (process.pid == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody reads what it says any more
      const int nothing = open("/dev/null", O_RDONLY);
      dup2(nothing, 0);
      dup2(process.output, 1);
      dup2(process.output, 2);
      const char* arguments[] = {program.c_str(), test.c_str(), nullptr};
      execve(program.c_str(), const_cast<char**>(arguments), pointers.data());
      _exit(127);
    }
    if (process.pid < 0) throw std::runtime_error("fork");
    processes_.push_back(process);
  }
}

Job::~Job() {
  for (int rank = 0; rank < ranks(); ++rank) {
    if (running(rank)) signal(rank);
    wait(rank, 10);
    close(processes_[static_cast<size_t>(rank)].output);
  }
  munmap(shared_, sizeof(Shared));
  close(shared_file_);
}

void Job::signal(int rank, int number) const {
  if (status(rank) < 0) ::kill(pid(rank), number);
}

bool Job::running(int rank) {
  Process& process = processes_[static_cast<size_t>(rank)];
  if (process.status >= 0) return false;
  int status = 0;
  if (waitpid(process.pid, &status, WNOHANG) != process.pid) return true;
  process.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

bool Job::wait(int rank, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (running(rank)) {
    if (std::chrono::steady_clock::now() > deadline) {
      signal(rank);
      while (running(rank)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool Job::wait_all(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  bool in_time = true;
  for (int rank = 0; rank < ranks(); ++rank) {
    const std::chrono::duration<double> used = std::chrono::steady_clock::now() - begin;
    in_time &= wait(rank, seconds - used.count());
  }
  return in_time;
}

std::string Job::output(int rank) const {
  const int file = processes_[static_cast<size_t>(rank)].output;
  struct stat info{};
  fstat(file, &info);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

std::string Job::output() const {
  std::string all;
  for (int rank = 0; rank < ranks(); ++rank) {
    all += "---- rank " + std::to_string(rank) + "\n" + output(rank);
  }
  return all;
}

std::string Job::trouble(double seconds) {
  std::string text;
  if (!wait_all(seconds)) text += "not finished after " + std::to_string(seconds) + " s; ";
  for (int rank = 0; rank < ranks(); ++rank) {
    if (status(rank) == 0) continue;
    text += "rank " + std::to_string(rank) + " ended with " + std::to_string(status(rank)) + "; ";
  }
  return text.empty() ? "" : text + "\n" + output();
}

unsigned long long total(const std::string& output, const std::string& key) {
  unsigned long long sum = 0;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(" " + key + "=");
    if (line.find("] stats ") == std::string::npos || at == std::string::npos) continue;
    sum += std::strtoull(line.c_str() + at + key.size() + 2, nullptr, 10);
  }
  return sum;
}

std::vector<std::string> lines_of(const std::string& output, const std::string& level,
                                  const std::vector<std::string>& words) {
  std::vector<std::string> found;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    bool all = line.find("] " + level + ": ") != std::string::npos;
    for (const std::string& word : words) all = all && line.find(word) != std::string::npos;
    if (all) found.push_back(line);
  }
  return found;
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

std::string read_file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TemporaryFile::TemporaryFile(const std::string& name)
    : path_(std::filesystem::temp_directory_path() / (name + "-" + std::to_string(getpid()))) {
  std::filesystem::remove(path_);
}

TemporaryFile::~TemporaryFile() { std::filesystem::remove(path_); }

}  // namespace cases
