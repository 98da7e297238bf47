// What the tests of the log share.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "test/catch.h"

namespace shunt {

struct Outcome {
  int pid;
  int status;          // of waitpid
  std::string output;  // stderr
};

// Runs `work` in a child: the log's state is one for each process, and a child that hangs is
// killed.
inline Outcome in_child(const std::function<void()>& work, bool leave_by_exit = false) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const int pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    alarm(60);
    dup2(ends[1], STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    work();
    if (leave_by_exit) std::exit(0);
    _exit(0);
  }
  close(ends[1]);
  Outcome outcome{pid, 0, ""};
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;)
    outcome.output.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  waitpid(pid, &outcome.status, 0);
  return outcome;
}

inline std::string prefix(int pid) { return "nccl-shunt[" + std::to_string(pid) + "] "; }

inline std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

struct Folder {
  Folder() {
    char name[] = "/tmp/shunt-log-test-XXXXXX";
    REQUIRE(mkdtemp(name));
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

}  // namespace shunt
