#include "tools/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace shunt::cli {

ProgressBar::ProgressBar() : terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressBar::show(double part, const std::string& what) {
  if (!terminal_) return;
  constexpr int kWidth = 30;
  const int done = std::clamp(static_cast<int>(part * kWidth), 0, kWidth);
  const std::string bar = std::string(static_cast<size_t>(done), '#') +
                          std::string(static_cast<size_t>(kWidth - done), '.');
  std::fprintf(stderr, "\r[%s] %3.0f %%  %-40.40s", bar.c_str(), 100 * part, what.c_str());
  std::fflush(stderr);
  shown_ = true;
}

void ProgressBar::clear() {
  if (!shown_) return;
  std::fprintf(stderr, "\r%*s\r", 80, "");
  std::fflush(stderr);
  shown_ = false;
}

void ProgressBar::line(const std::string& text) {
  clear();
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void ProgressBar::note(const std::string& text) {
  clear();
  std::fputs(text.c_str(), stderr);
}

}  // namespace shunt::cli
