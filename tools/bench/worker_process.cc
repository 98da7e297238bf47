#include "tools/bench/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

extern "C" char** environ;

namespace shunt::bench {
namespace {

// The environment of a worker: this process's, with what the program changes. The counters and
// warnings of the library must come to stderr, where they are caught.
std::vector<std::string> worker_environment(const WorkerProgram& program) {
  std::vector<std::string> changes = {"SHUNT_STATS=1", "SHUNT_LOG_FILE"};
  if (!program.ld_preload.empty()) changes.push_back("LD_PRELOAD=" + program.ld_preload);
  changes.insert(changes.end(), program.environment.begin(), program.environment.end());
  const auto name_in = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const bool replaced = std::ranges::any_of(
        changes, [&](const std::string& change) { return name_in(change) == name_in(text); });
    if (!replaced) result.push_back(text);
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) result.push_back(change);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// In the child: moves the descriptors to their places. Sources lie above all places (move_high), so
// no dup2 overwrites one that is still needed. dup2 clears close-on-exec.
void place(int channel, int board, int errors) {
  if (dup2(channel, kChannelFd) < 0 || dup2(board, kBoardFd) < 0 ||
      dup2(errors, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0)
    _exit(126);
}

FileDescriptor move_high(int fd) {
  constexpr int kLowest = 16;
  return FileDescriptor(checked(fcntl(fd, F_DUPFD_CLOEXEC, kLowest), "fcntl"));
}

}  // namespace

WorkerProcess start_worker(const WorkerProgram& program, const std::vector<uint32_t>& ranks,
                           int board_fd) {
  int pair[2];
  checked(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
  FileDescriptor ours(pair[0]), theirs(pair[1]);
  int pipe_ends[2];
  checked(pipe2(pipe_ends, O_CLOEXEC), "pipe2");
  FileDescriptor errors(pipe_ends[0]), errors_writer(pipe_ends[1]);
  checked(fcntl(errors.get(), F_SETFL, O_NONBLOCK), "fcntl");

  const FileDescriptor high_channel = move_high(theirs.get());
  const FileDescriptor high_board = move_high(board_fd);
  const FileDescriptor high_errors = move_high(errors_writer.get());
  std::vector<std::string> arguments = {program.path};
  for (const uint32_t rank : ranks) arguments.push_back(std::to_string(rank));
  std::vector<std::string> environment = worker_environment(program);
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);

  const pid_t parent = getpid();
  const pid_t pid = checked(fork(), "fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(126);  // the launcher died in between
    place(high_channel.get(), high_board.get(), high_errors.get());
    execve(program.path.c_str(), argv.data(), envp.data());
    _exit(127);
  }
  WorkerProcess process;
  process.ranks = ranks;
  process.pid = pid;
  process.channel = std::make_unique<Channel>(std::move(ours));
  process.errors = std::move(errors);
  return process;
}

void WorkerProcess::reap() {
  int ended = 0;
  if (!status && waitpid(pid, &ended, WNOHANG) == pid) status = ended;
}

void WorkerProcess::kill_and_reap() {
  if (status || pid < 0) return;
  kill(pid, SIGKILL);
  // A process can hang in the driver even then, for as long as the driver likes: do not wait for
  // ever.
  for (int attempt = 0; attempt < 500 && !status; ++attempt) {
    reap();
    if (!status) usleep(10'000);
  }
}

std::vector<std::string> WorkerProcess::drain_errors() {
  char buffer[4096];
  bool ended = false;
  while (errors.get() >= 0) {
    const ssize_t got = read(errors.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got > 0) {
      error_lines.append({buffer, static_cast<size_t>(got)});
    } else {
      errors.reset();
      ended = true;
    }
  }
  std::vector<std::string> lines;
  while (auto line = error_lines.next()) lines.push_back(*std::move(line));
  if (std::string rest = ended ? error_lines.rest() : ""; !rest.empty())
    lines.push_back(std::move(rest));
  return lines;
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) {
    return "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
           strsignal(WTERMSIG(status)) + ")";
  }
  const int code = WEXITSTATUS(status);
  std::string text = "exited with status " + std::to_string(code) + " before it had finished";
  if (code == 127) {
    text +=
        ": it could not be started, or a shared library is missing (libnccl.so.2 or libcuda.so.1: "
        "add their folders to LD_LIBRARY_PATH)";
  }
  return text;
}

}  // namespace shunt::bench
