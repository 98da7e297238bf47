#include "shim/engine/log.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

namespace shunt {
namespace {

// Callers are hooks: the program must find errno as NCCL left it.
class ErrnoKeeper {
 public:
  ErrnoKeeper() : errno_(errno) {}
  ~ErrnoKeeper() { errno = errno_; }

 private:
  const int errno_;
};

// A plain write would end the program when the reader of its stderr has gone. The thread's mask,
// not signal(): the disposition belongs to the program.
class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &old_mask_);
  }
  ~SigpipeGuard() {
    const timespec now{};
    while (raised_ && !was_pending_ && sigtimedwait(&sigpipe_, nullptr, &now) < 0 &&
           errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  void raised() { raised_ = true; }

 private:
  sigset_t sigpipe_;
  sigset_t old_mask_;
  bool was_pending_ = false;
  bool raised_ = false;
};

// One write(), so that lines of several processes do not mix.
bool write_line(int fd, std::string_view line) {
  SigpipeGuard guard;
  ssize_t written;
  do {
    written = write(fd, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0 && errno == EPIPE) guard.raised();
  return written >= 0;
}

// Not spdlog's: localtime takes a lock that a fork may leave locked, and reads TZ while the program
// may be changing its environment.
std::string utc_time(std::chrono::system_clock::time_point time) {
  using namespace std::chrono;
  const auto milli = floor<milliseconds>(time);
  const auto day = floor<days>(milli);
  const year_month_day date{day};
  const hh_mm_ss clock{milli - day};
  return format("%04d-%02u-%02uT%02d:%02d:%02d.%03dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()),
                static_cast<int>(clock.subseconds().count()));
}

const char* kind_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::critical:
      return "stats";
    case spdlog::level::err:
      return "error:";
    case spdlog::level::warn:
      return "warning:";
    case spdlog::level::info:
      return "info:";
    default:
      return "debug:";
  }
}

std::string compose(std::string prefix, const char* kind, std::string_view message) {
  std::string line = std::move(prefix);
  line += format("nccl-shunt[%d] %s ", static_cast<int>(getpid()), kind);
  for (const char c : message.substr(0, kMaxLogLine)) {
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  if (line.size() >= kMaxLogLine) line.replace(kMaxLogLine - 4, std::string::npos, "...");
  line += '\n';
  return line;
}

// Holds no lock and no state that a line changes, so that a child forked in the middle of a line
// can log. Holds no descriptor either: programs close those that they do not know, and would get
// our lines in the file or socket that has the number next. So a file is opened for each line.
// A hard link is a link too: another user may have given one of our files that name. A FIFO of his,
// with a reader, would take our lines.
bool is_plain(int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return false;
  if (S_ISCHR(status.st_mode) || (S_ISREG(status.st_mode) && status.st_nlink <= 1)) return true;
  errno = S_ISREG(status.st_mode) ? EMLINK : EINVAL;
  return false;
}

class LineSink final : public spdlog::sinks::sink {
 public:
  LineSink(std::string file, std::string folder)
      : file_(std::move(file)), folder_(std::move(folder)) {}

  void log(const spdlog::details::log_msg& msg) override {
    const std::string_view message(msg.payload.data(), msg.payload.size());
    if (!file_.empty() &&
        write_to_file(compose(utc_time(msg.time) + " ", kind_of(msg.level), message)))
      return;
    write_line(STDERR_FILENO, compose("", kind_of(msg.level), message));
  }
  void flush() override {}
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  bool write_to_file(const std::string& line) {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    std::string path = expand_log_path(file_, getpid(), host);
    if (path[0] != '/') path = folder_ + "/" + path;
    // O_NOFOLLOW: in /tmp another user may have put a link of that name. O_NONBLOCK: opening a FIFO
    // that nobody reads would wait for ever.
    const int fd =
        open(path.c_str(),
             O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    const bool written = fd >= 0 && is_plain(fd) && write_line(fd, line);
    const int error = errno;
    if (fd >= 0) close(fd);
    if (!written && !reported_.exchange(true)) {
      char text[128];
      const std::string what = format("cannot log to %s (%s), logging to stderr", path.c_str(),
                                      strerror_r(error, text, sizeof(text)));
      write_line(STDERR_FILENO, compose("", "error:", what));
    }
    return written;
  }

  const std::string file_;
  const std::string folder_;
  std::atomic<bool> reported_ = false;
};

struct State {
  State(const std::string& file, const std::string& folder)
      : logger("nccl-shunt", std::make_shared<LineSink>(file, folder)) {
    logger.set_level(spdlog::level::trace);               // g_level filters
    logger.set_error_handler([](const std::string&) {});  // spdlog's own takes a lock
  }
  spdlog::logger logger;
  const State* previous = nullptr;  // reachable, so that leak checkers see no leak
};

// Neither is ever destroyed: another thread may be logging, and destructors and atexit functions
// do. No function-local static: its guard may be held by another thread at a fork.
constinit std::atomic<State*> g_state = nullptr;
constinit std::atomic<LogLevel> g_level = LogLevel::info;

State* current_state() {
  State* state = g_state.load(std::memory_order_acquire);
  if (state) return state;
  auto fresh = std::make_unique<State>("", "");
  if (g_state.compare_exchange_strong(state, fresh.get(), std::memory_order_acq_rel))
    state = fresh.release();
  return state;
}

void emit(spdlog::level::level_enum level, std::string_view message) noexcept {
  const ErrnoKeeper keep_errno;
  try {
    current_state()->logger.log(level, spdlog::string_view_t(message.data(), message.size()));
  } catch (...) {
    // Out of memory: a lost line is better than a lost job.
  }
}

std::string vformat(const char* fmt, va_list args) {
  va_list again;
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, fmt, again);
  va_end(again);
  if (size <= 0) return {};
  std::string text(static_cast<size_t>(size), '\0');
  std::vsnprintf(text.data(), text.size() + 1, fmt, args);
  return text;
}

void log_formatted(LogLevel level, const char* fmt, va_list args) noexcept {
  if (!log_enabled(level)) return;
  const ErrnoKeeper keep_errno;
  try {
    log_line(level, vformat(fmt, args));
  } catch (...) {
    log_line(level, fmt);
  }
}

}  // namespace

void log_configure(LogLevel level, const std::string& file) noexcept {
  const ErrnoKeeper keep_errno;
  g_level.store(level, std::memory_order_relaxed);
  try {
    char folder[4096];
    auto fresh = std::make_unique<State>(file, getcwd(folder, sizeof(folder)) ? folder : ".");
    State* const state = fresh.release();
    State* previous = g_state.load(std::memory_order_acquire);
    do {
      state->previous = previous;
    } while (!g_state.compare_exchange_weak(previous, state, std::memory_order_acq_rel));
  } catch (...) {
    // Out of memory: goes on where it logged before.
  }
}

bool log_enabled(LogLevel level) noexcept {
  return level != LogLevel::off && level <= g_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view message) noexcept {
  if (!log_enabled(level)) return;
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::off, spdlog::level::err,
                                                          spdlog::level::warn, spdlog::level::info,
                                                          spdlog::level::debug};
  emit(kLevels[static_cast<int>(level)], message);
}

void log_stats_line(std::string_view message) noexcept { emit(spdlog::level::critical, message); }

std::string format(const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  // vformat may throw; on Linux va_end does nothing that would be missed.
  std::string text = vformat(fmt, args);
  va_end(args);
  return text;
}

#define SHUNT_DEFINE_LOG(name, level)          \
  void name(const char* fmt, ...) noexcept {   \
    va_list args;                              \
    va_start(args, fmt);                       \
    log_formatted(LogLevel::level, fmt, args); \
    va_end(args);                              \
  }
SHUNT_DEFINE_LOG(log_error, error)
SHUNT_DEFINE_LOG(log_warning, warning)
SHUNT_DEFINE_LOG(log_info, info)
SHUNT_DEFINE_LOG(log_debug, debug)
#undef SHUNT_DEFINE_LOG

std::string expand_log_path(std::string_view pattern, int pid, std::string_view host) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'p') {
      path += std::to_string(pid);
    } else if (next == 'h') {
      for (const char c : host) path += c == '/' ? '_' : c;
    } else {
      path += pattern[i];
      if (next != '%') continue;
    }
    ++i;
  }
  return path;
}

}  // namespace shunt
