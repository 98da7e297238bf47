// Log lines, to stderr or to SHUNT_LOG_FILE. Everything here may be called from any thread, before
// log_configure, after fork, and while the program exits; nothing throws except format (bad_alloc);
// errno is left as it was.
//   stderr  nccl-shunt[1234] warning: the message
//   file    2026-01-31T12:00:00.000Z nccl-shunt[1234] warning: the message
#pragma once

#include <string>
#include <string_view>

#define SHUNT_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

namespace shunt {

// In the order of verbosity: a level shows itself and all before it.
enum class LogLevel { off, error, warning, info, debug };

// Before this is called: info, stderr. `file`: empty for stderr, else a path in which %p is the
// pid, %h the name of the host and %% a percent sign; a relative one starts at the folder current
// now. A file that cannot be opened or written, a link (a hard one too) or a FIFO is reported once, and
// its lines go to stderr.
void log_configure(LogLevel level, const std::string& file) noexcept;
bool log_enabled(LogLevel level) noexcept;

// One line: control characters become spaces, and what exceeds kMaxLogLine bytes is cut off,
// because only so much reaches a pipe in one piece when several ranks share it.
inline constexpr size_t kMaxLogLine = 4096;
void log_line(LogLevel level, std::string_view message) noexcept;
// Shown at every level, off included: the caller asks only if the user did. "nccl-shunt[1234] stats
// ..."
void log_stats_line(std::string_view message) noexcept;

// The arguments are evaluated even if the level is not shown: ask log_enabled before costly ones.
void log_error(const char* fmt, ...) noexcept SHUNT_PRINTF(1, 2);
void log_warning(const char* fmt, ...) noexcept SHUNT_PRINTF(1, 2);
void log_info(const char* fmt, ...) noexcept SHUNT_PRINTF(1, 2);
void log_debug(const char* fmt, ...) noexcept SHUNT_PRINTF(1, 2);

std::string format(const char* fmt, ...) SHUNT_PRINTF(1, 2);

// The file that a pattern means for one process; a slash in `host` becomes an underscore.
std::string expand_log_path(std::string_view pattern, int pid, std::string_view host);

}  // namespace shunt
