#include "test/unit/log_test.h"

#include <sys/stat.h>

#include <map>
#include <regex>

#include "shim/engine/log.h"

namespace shunt {
namespace {

void log_one_of_each() {
  log_error("e%d", 1);
  log_warning("w%s", "2");
  log_info("i%c", '3');
  log_debug("d%04.1f", 4.0);
}

TEST_CASE("info and stderr are the default") {
  const Outcome outcome = in_child(log_one_of_each);
  const std::string p = prefix(outcome.pid);
  CHECK(outcome.status == 0);
  CHECK(outcome.output == p + "error: e1\n" + p + "warning: w2\n" + p + "info: i3\n");
}

TEST_CASE("a level shows itself and what is graver") {
  const std::pair<LogLevel, size_t> kLines[] = {{LogLevel::off, 0},
                                                {LogLevel::error, 1},
                                                {LogLevel::warning, 2},
                                                {LogLevel::info, 3},
                                                {LogLevel::debug, 4}};
  for (const auto& [level, count] : kLines) {
    const Outcome outcome = in_child([l = level] {
      log_configure(l, "");
      log_one_of_each();
      log_line(LogLevel::off, "never");
    });
    CHECK(lines_of(outcome.output).size() == count);
  }
  CHECK_THAT(in_child([] {
               log_configure(LogLevel::debug, "");
               log_one_of_each();
             }).output,
             ContainsSubstring("] debug: d04.0\n"));
}

TEST_CASE("log_enabled agrees with what is shown") {
  const Outcome outcome = in_child([] {
    log_configure(LogLevel::warning, "");
    if (log_enabled(LogLevel::off) || !log_enabled(LogLevel::error) ||
        !log_enabled(LogLevel::warning) || log_enabled(LogLevel::info) ||
        log_enabled(LogLevel::debug))
      _exit(1);
  });
  CHECK(outcome.status == 0);
}

TEST_CASE("statistics are shown at every level") {
  const Outcome outcome = in_child([] {
    log_configure(LogLevel::off, "");
    log_stats_line("shunted 3");
  });
  CHECK(outcome.output == prefix(outcome.pid) + "stats shunted 3\n");
}

TEST_CASE("lines are appended to a file that only its owner reads") {
  const Folder folder;
  const std::string path = folder.path + "/log";
  const Outcome first = in_child([&] {
    umask(0);
    log_configure(LogLevel::info, path);
    log_info("one");
    log_stats_line("two");
  });
  CHECK(first.output == "");
  struct stat status;
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  const Outcome second = in_child([&] {
    log_configure(LogLevel::info, path);
    log_info("three");
  });
  const auto lines = lines_of(contents(path));
  REQUIRE(lines.size() == 3);
  const std::string time = R"(20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d\.\d\d\dZ nccl-shunt\[)";
  CHECK(
      std::regex_match(lines[0], std::regex(time + std::to_string(first.pid) + R"(\] info: one)")));
  CHECK(
      std::regex_match(lines[1], std::regex(time + std::to_string(first.pid) + R"(\] stats two)")));
  CHECK(std::regex_match(lines[2],
                         std::regex(time + std::to_string(second.pid) + R"(\] info: three)")));
}

TEST_CASE("the pattern of a file's name") {
  CHECK(expand_log_path("/tmp/%h.%p.log", 12, "node/1") == "/tmp/node_1.12.log");
  CHECK(expand_log_path("%%p%p%p%%", 7, "h") == "%p77%");
  CHECK(expand_log_path("%d%", 7, "h") == "%d%");
  CHECK(expand_log_path("", 7, "h") == "");
}

TEST_CASE("a forked child logs under its own pid, to its own file") {
  const Folder folder;
  const Outcome outcome = in_child([&] {
    log_configure(LogLevel::info, folder.path + "/%p");
    log_info("parent");
    if (fork() == 0) {
      log_info("child");
      _exit(0);
    }
    wait(nullptr);
  });
  CHECK(outcome.output == "");
  std::map<int, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    files[std::stoi(entry.path().filename())] = contents(entry.path());
  REQUIRE(files.size() == 2);
  for (const auto& [pid, text] : files)
    CHECK_THAT(text, ContainsSubstring(prefix(pid) +
                                       (pid == outcome.pid ? "info: parent\n" : "info: child\n")));
}

TEST_CASE("a relative file stays where it was when the program changes its folder") {
  const Folder folder;
  std::filesystem::create_directory(folder.path + "/100%p");
  const Outcome outcome = in_child([&] {
    if (chdir((folder.path + "/100%p").c_str()) != 0) _exit(1);
    log_configure(LogLevel::info, "log");
    if (chdir("/") != 0) _exit(1);
    log_info("here");
  });
  CHECK(outcome.status == 0);
  CHECK_THAT(contents(folder.path + "/100%p/log"), ContainsSubstring("info: here\n"));
}

TEST_CASE("a file that cannot be used is told once and stderr serves") {
  const Folder folder;
  const std::string victim = folder.path + "/victim";
  std::ofstream(victim) << "precious\n";
  std::filesystem::create_symlink(victim, folder.path + "/link");
  std::filesystem::create_directory(folder.path + "/folder");
  REQUIRE(mkfifo((folder.path + "/fifo").c_str(), 0600) == 0);
  std::filesystem::create_hard_link(victim, folder.path + "/hard");
  REQUIRE(mkfifo((folder.path + "/read").c_str(), 0600) == 0);  // by somebody else, say
  const int reader = open((folder.path + "/read").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  for (const std::string name : {"link", "hard", "folder", "fifo", "read", "missing/log"}) {
    INFO(name);
    const Outcome outcome = in_child([&] {
      log_configure(LogLevel::info, folder.path + "/" + name);
      log_info("one");
      log_info("two");
    });
    CHECK(outcome.status == 0);
    const std::string p = prefix(outcome.pid);
    const auto lines = lines_of(outcome.output);
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].starts_with(p + "error: cannot log to " + folder.path + "/" + name + " ("));
    CHECK(lines[1] == p + "info: one");
    CHECK(lines[2] == p + "info: two");
  }
  CHECK(contents(victim) == "precious\n");
  char byte = 0;
  CHECK(read(reader, &byte, 1) <= 0);
  close(reader);
  const Outcome full = in_child([] {
    log_configure(LogLevel::info, "/dev/full");
    log_info("one");
  });
  CHECK_THAT(full.output, ContainsSubstring("cannot log to /dev/full (No space left on device)"));
  CHECK_THAT(full.output, ContainsSubstring("info: one\n"));
}

TEST_CASE("a message is one line of at most kMaxLogLine bytes") {
  const Outcome outcome = in_child([] {
    log_line(LogLevel::info, "a\nb\x1b[31m\tc\x7f\xc3\xa4");
    log_line(LogLevel::info, std::string(100000, 'x'));
    log_line(LogLevel::info, "after");
  });
  const auto lines = lines_of(outcome.output);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == prefix(outcome.pid) + "info: a b [31m c \xc3\xa4");
  CHECK(lines[1].size() == kMaxLogLine - 1);
  CHECK(lines[1].ends_with("xxx..."));
  CHECK(lines[2] == prefix(outcome.pid) + "info: after");
}

TEST_CASE("format") {
  CHECK(format("%s", "") == "");
  CHECK(format("%d/%s", 3, "x") == "3/x");
  CHECK(format("%s", std::string(100000, 'y').c_str()) == std::string(100000, 'y'));
}

}  // namespace
}  // namespace shunt
