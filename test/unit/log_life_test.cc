// The log under threads, forks, exits, lack of memory, and programs that close descriptors.
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>
#include <thread>

#include "shim/engine/log.h"
#include "test/unit/log_test.h"

// The allocation that many calls of operator new from now throws; below 0: none does.
// noinline: gcc takes an inlined free for a mismatch.
static thread_local int allocations_left = -1;

[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* const memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace shunt {
namespace {

bool log_in_destructor = false;
// Made before the first line is logged, so destroyed after whatever that line made.
struct LogsLate {
  ~LogsLate() {
    if (log_in_destructor) log_info("from a destructor");
  }
} logs_late;

TEST_CASE("errno stays as it was") {
  const Outcome outcome = in_child([] {
    log_configure(LogLevel::info, "/nowhere/log");
    errno = 77;
    log_info("one");
    if (errno != 77) _exit(1);
    log_configure(LogLevel::info, "/nowhere/log");
    if (errno != 77) _exit(2);
  });
  CHECK(outcome.status == 0);
}

TEST_CASE("nobody reading stderr does not end the program") {
  const Outcome outcome = in_child([] {
    int ends[2];
    if (pipe(ends) != 0) _exit(1);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    signal(SIGPIPE, SIG_DFL);
    log_info("one");
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    if (sigismember(&mask, SIGPIPE)) _exit(2);
    // The program's own broken pipes work as before.
    if (fork() == 0) _exit(static_cast<int>(write(STDERR_FILENO, "x", 1)));
    int status = 0;
    wait(&status);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGPIPE) _exit(3);
  });
  CHECK(outcome.status == 0);
}

TEST_CASE("lines of several threads stay whole") {
  constexpr int kThreads = 8;
  constexpr int kLines = 200;
  const Folder folder;
  for (const std::string& path : {std::string(), folder.path + "/log"}) {
    const Outcome outcome = in_child([&] {
      log_configure(LogLevel::info, path);
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([t] {
          for (int i = 0; i < kLines; ++i)
            log_info("%d %d %s", t, i, std::string(1000, static_cast<char>('a' + t)).c_str());
        });
      for (std::thread& thread : threads) thread.join();
    });
    const size_t time = path.empty() ? 0 : std::strlen("2026-01-31T12:00:00.000Z ");
    std::map<std::string, int> seen;
    for (const std::string& line : lines_of(path.empty() ? outcome.output : contents(path)))
      if (line.size() > time) ++seen[line.substr(time)];
    REQUIRE(seen.size() == kThreads * kLines);
    for (int t = 0; t < kThreads; ++t)
      for (int i = 0; i < kLines; ++i)
        REQUIRE(seen[prefix(outcome.pid) +
                     format("info: %d %d %s", t, i,
                            std::string(1000, static_cast<char>('a' + t)).c_str())] == 1);
  }
}

TEST_CASE("a child forked while other threads log can log") {
  const Folder folder;
  const Outcome outcome = in_child([&] {
    log_configure(LogLevel::info, folder.path + "/log");
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        while (!stop) log_info("busy");
      });
    int failed = 0;
    for (int i = 0; i < 200; ++i) {
      const int pid = fork();
      if (pid == 0) {
        alarm(10);
        log_info("child %d", i);
        _exit(0);
      }
      int status = 0;
      waitpid(pid, &status, 0);
      failed += status != 0;
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    _exit(failed != 0);
  });
  CHECK(outcome.status == 0);
  CHECK_THAT(contents(folder.path + "/log"), ContainsSubstring("info: child 199\n"));
}

TEST_CASE("lines at exit: atexit, and destructors of static objects") {
  const Outcome outcome = in_child(
      [] {
        log_in_destructor = true;
        std::atexit([] { log_info("from atexit"); });
        log_info("first");
      },
      true);
  const std::string p = prefix(outcome.pid);
  CHECK(outcome.output ==
        p + "info: first\n" + p + "info: from atexit\n" + p + "info: from a destructor\n");
  CHECK(outcome.status == 0);
}

TEST_CASE("no descriptor is held, so none can be taken for another") {
  const Folder folder;
  const Outcome outcome = in_child([&] {
    log_configure(LogLevel::info, folder.path + "/log");
    log_info("one");
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    const int mine = open((folder.path + "/mine").c_str(), O_CREAT | O_RDWR, 0600);
    log_info("two");
    const int next = open("/dev/null", O_RDONLY);
    _exit(mine == 3 && next == 4 ? 0 : 1);
  });
  CHECK(outcome.status == 0);
  CHECK(contents(folder.path + "/mine") == "");
  CHECK(lines_of(contents(folder.path + "/log")).size() == 2);
}

TEST_CASE("out of memory loses lines, never the program") {
  const Outcome outcome = in_child([] {
    for (int n = 0; n < 60; ++n) {
      const std::string message(200, 'm');
      const std::string nowhere = "/nonexistent/" + message;
      allocations_left = n;
      log_line(LogLevel::info, message);
      allocations_left = n;
      log_error("%s", message.c_str());
      allocations_left = n;
      log_configure(LogLevel::info, nowhere);
      allocations_left = n;
      log_stats_line(message);
      allocations_left = -1;
      log_configure(LogLevel::info, "");
    }
    log_info("alive");
  });
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.output, ContainsSubstring("info: alive\n"));
}

}  // namespace
}  // namespace shunt
