// One worker process as the launcher sees it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/channel.h"
#include "tools/bench/file_descriptor.h"
#include "tools/bench/line_buffer.h"

namespace shunt::bench {

struct WorkerProcess {
  std::vector<uint32_t> ranks;
  pid_t pid = -1;
  std::unique_ptr<Channel> channel;
  FileDescriptor errors;  // what it writes to stdout and stderr; non-blocking
  LineBuffer error_lines;
  bool done = false;          // said that it has finished
  std::optional<int> status;  // of waitpid, once it has ended

  void reap();           // notes the end of the process, if it has ended
  void kill_and_reap();  // ends it, if it still runs, and waits for that
  // What it has written there, in lines; closes `errors` at the end of it.
  std::vector<std::string> drain_errors();
};

// "was killed by signal 11 (Segmentation fault)", "exited with status 1"
std::string describe_status(int status);

struct WorkerProgram {
  std::string path;
  std::string ld_preload;  // becomes its LD_PRELOAD; empty: that of this process stays
  std::vector<std::string> environment;  // NAME=value, in place of this process's; NAME: removed
};

// Starts the program with the descriptors of channel.h, its stdout and stderr caught. Throws
// std::system_error.
WorkerProcess start_worker(const WorkerProgram& program, const std::vector<uint32_t>& ranks,
                           int board_fd);

}  // namespace shunt::bench
