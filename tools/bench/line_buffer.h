// Cuts a stream of bytes into lines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace shunt::bench {

class LineBuffer {
 public:
  void append(std::string_view bytes) { pending_.append(bytes); }

  // The next whole line, without its end.
  std::optional<std::string> next() {
    const size_t end = pending_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return line;
  }

  // What is left after the last line end, when the stream has ended and next() has nothing more.
  std::string rest() { return std::exchange(pending_, {}); }

 private:
  std::string pending_;
};

}  // namespace shunt::bench
