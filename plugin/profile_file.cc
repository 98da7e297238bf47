#include "plugin/profile_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "plugin/profile_json.h"

namespace shunt::tuner {
namespace {

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const char* what, int error) {
  throw std::runtime_error(std::string(what) + ": " + std::strerror(error));
}

// Why the open file is not read; null: it is.
const char* objection(const struct stat& facts) {
  if (!S_ISREG(facts.st_mode)) return "not a plain file";
  if (facts.st_uid != geteuid() && facts.st_uid != 0) return "belongs to another user";
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "writable by others";
  if (facts.st_size < 0 || static_cast<uint64_t>(facts.st_size) > kMaxProfileText) {
    return "larger than a profile may be";
  }
  return nullptr;
}

}  // namespace

std::optional<std::string> read_profile_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe would wait for its writer. What is checked is the open file, not the
  // name, which may mean another file a moment later.
  const File file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    if (errno == ELOOP) throw std::runtime_error("a symbolic link");
    fail("cannot be opened", errno);
  }
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) fail("cannot be examined", errno);
  if (const char* what = objection(facts)) throw std::runtime_error(what);
  std::string text(kMaxProfileText + 1, '\0');  // one more: a file that grows meanwhile is seen
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = read(file.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot be read", errno);
    if (got == 0) break;
    length += static_cast<size_t>(got);
  }
  if (length > kMaxProfileText) throw std::runtime_error("larger than a profile may be");
  text.resize(length);
  return text;
}

void write_profile_file(const std::string& path, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error("cannot make " + folder.string() + ": " + error.message());
  std::string fresh = path + ".XXXXXX";
  const File file(mkstemp(fresh.data()));
  if (file.get() < 0) fail(("cannot make " + fresh).c_str(), errno);
  size_t done = 0;
  bool good = fchmod(file.get(), 0644) == 0;
  while (good && done < text.size()) {
    const ssize_t wrote = write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    good = wrote > 0;
    if (good) done += static_cast<size_t>(wrote);
  }
  if (good && rename(fresh.c_str(), path.c_str()) == 0) return;
  const int code = errno;
  unlink(fresh.c_str());
  fail(("cannot write " + path).c_str(), code);
}

}  // namespace shunt::tuner
