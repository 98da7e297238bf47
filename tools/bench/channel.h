// A worker's line of messages (fields.h) to the launcher, and back, over one socket.
#pragma once

#include <mutex>
#include <vector>

#include "tools/bench/fields.h"
#include "tools/bench/file_descriptor.h"
#include "tools/bench/line_buffer.h"

namespace shunt::bench {

// Descriptors that a worker inherits.
inline constexpr int kChannelFd = 3;
inline constexpr int kBoardFd = 4;

class Channel {
 public:
  explicit Channel(FileDescriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Thread-safe; blocks while the socket is full. Throws std::system_error.
  void send(const Fields& message);

  // The next message, blocking. Throws when the other side is gone.
  Fields receive();

  // What has arrived, without blocking; closed() tells whether the other side is gone.
  std::vector<Fields> drain();
  bool closed() const { return closed_; }

 private:
  bool read_some(int flags);  // false: nothing there

  FileDescriptor socket_;
  std::mutex sending_;
  LineBuffer lines_;
  bool closed_ = false;
};

}  // namespace shunt::bench
