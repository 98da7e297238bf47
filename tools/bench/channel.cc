#include "tools/bench/channel.h"

#include <sys/socket.h>

#include <stdexcept>

namespace shunt::bench {

void Channel::send(const Fields& message) {
  const std::string line = message.line();
  const std::lock_guard lock(sending_);
  for (size_t at = 0; at < line.size();) {
    const ssize_t sent = ::send(socket_.get(), line.data() + at, line.size() - at, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    at += static_cast<size_t>(checked(static_cast<int>(sent), "send to the other process"));
  }
}

bool Channel::read_some(int flags) {
  char buffer[16384];
  for (;;) {
    const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, flags);
    if (got > 0) {
      lines_.append({buffer, static_cast<size_t>(got)});
      return true;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    closed_ = true;  // end of file, or a reset: the other process is gone
    return false;
  }
}

Fields Channel::receive() {
  for (;;) {
    if (const auto line = lines_.next()) return Fields::parse(*line);
    read_some(0);
    if (closed_) throw std::runtime_error("the launcher is gone");
  }
}

std::vector<Fields> Channel::drain() {
  while (read_some(MSG_DONTWAIT)) {
  }
  std::vector<Fields> messages;
  while (const auto line = lines_.next()) messages.push_back(Fields::parse(*line));
  return messages;
}

}  // namespace shunt::bench
