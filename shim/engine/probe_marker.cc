#include "shim/engine/probe_marker.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "plugin/profile_place.h"
#include "shim/engine/log.h"

namespace shunt {
namespace {

constexpr std::string_view kHead = "nccl-shunt probes these GPUs\n";
constexpr std::string_view kEnd = "end\n";  // one that was cut off has none
constexpr char kPrefix[] = "probing-";
constexpr size_t kMostBytes = 4096;

std::string hex(const void* data, size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    const unsigned byte = static_cast<const unsigned char*>(data)[i];
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

// One word behind `key` and a space.
std::optional<std::string> take_line(std::string_view& text, std::string_view key) {
  if (!text.starts_with(key) || text.size() <= key.size() || text[key.size()] != ' ') return {};
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return {};
  const std::string_view value = text.substr(key.size() + 1, end - key.size() - 1);
  const bool word = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!word) return {};
  text.remove_prefix(end + 1);
  return std::string(value);
}

// What is open is checked, not its name, which may mean something else a moment later.
int open_folder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat facts{};
  if (fd < 0 || (fstat(fd, &facts) == 0 && facts.st_uid == geteuid())) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

int open_marker(int folder, const char* name) {
  const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  struct stat facts{};
  if (fd < 0 || (fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_nlink == 1 &&
                 facts.st_uid == geteuid() && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0)) {
    return fd;
  }
  close(fd);
  return -1;
}

// Killed before it was written whole. Not a young one: it may be on its way.
bool abandoned(int fd) {
  struct stat facts{};
  return fstat(fd, &facts) == 0 && facts.st_mtime < time(nullptr) - 3600;
}

std::string read_all(int fd) {
  std::string text(kMostBytes, '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

}  // namespace

std::string record_text(const ProbeRecord& record) {
  std::string text(kHead);
  text += "boot " + record.boot_id + "\nplacement " + name_of(record.placement) + "\n";
  for (const std::string& gpu : record.gpus) text += "gpu " + gpu + "\n";
  return text.append(kEnd);
}

std::optional<ProbeRecord> parse_record(std::string_view text) {
  if (!text.starts_with(kHead)) return {};
  text.remove_prefix(kHead.size());
  ProbeRecord record;
  const std::optional<std::string> boot = take_line(text, "boot");
  const std::optional<std::string> placement = boot ? take_line(text, "placement") : std::nullopt;
  if (!placement) return {};
  record.boot_id = *boot;
  uint32_t value = 0;
  while (value < kPlacements && *placement != name_of(static_cast<Placement>(value))) ++value;
  if (value == kPlacements) return {};
  record.placement = static_cast<Placement>(value);
  while (const std::optional<std::string> gpu = take_line(text, "gpu")) record.gpus.push_back(*gpu);
  if (text != kEnd || record.gpus.size() > kMaxRanks) return {};
  return record;
}

ProbeRecord record_of(std::span<const Facts> facts, Placement placement) {
  ProbeRecord record;
  record.boot_id.assign(facts[0].boot_id, strnlen(facts[0].boot_id, sizeof(facts[0].boot_id)));
  record.placement = placement;
  for (const Facts& f : facts) record.gpus.push_back(hex(f.gpu, sizeof(f.gpu)));
  return record;
}

bool reset_while_probing(const ProbeRecord& record, std::span<const Facts> facts) {
  const ProbeRecord here = record_of(facts, record.placement);
  if (here.boot_id.empty() || here.boot_id == record.boot_id) return false;
  return std::count_if(here.gpus.begin(), here.gpus.end(), [&](const std::string& gpu) {
           return std::find(record.gpus.begin(), record.gpus.end(), gpu) != record.gpus.end();
         }) >= 2;
}

std::string marker_folder() {
  if (!tuner::environment_is_trusted()) return {};
  return tuner::cache_folder([](const char* name) -> const char* { return std::getenv(name); });
}

namespace {

// Only in a folder of this user's: root with another's HOME leaves nothing there that the other cannot use.
void make_folder(const std::string& folder) {
  const size_t name = folder.rfind('/') + 1;
  const int parent = open(folder.substr(0, name).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat facts{};
  if (parent >= 0 && fstat(parent, &facts) == 0 && facts.st_uid == geteuid()) {
    mkdirat(parent, folder.c_str() + name, 0700);
  }
  if (parent >= 0) close(parent);
}

}  // namespace

ProbeMarker::ProbeMarker(const std::string& folder, const ProbeRecord& record) noexcept {
  try {
    make(folder, record);
  } catch (const std::exception& error) {
    log_debug("no probe marker: %s", error.what());  // probed without
  }
}

void ProbeMarker::make(const std::string& folder, const ProbeRecord& record) {
  if (folder.empty() || record.boot_id.empty()) return;
  // The folder and the one that it lies in, never a home.
  make_folder(folder.substr(0, folder.rfind('/')));
  make_folder(folder);
  folder_ = open_folder(folder);
  uint64_t serial = 0;
  if (folder_ < 0 || getrandom(&serial, sizeof(serial), 0) != sizeof(serial)) {
    log_debug("no probe marker: %s: %s", folder.c_str(), std::strerror(errno));
    return;
  }
  name_ = kPrefix + hex(&serial, sizeof(serial));
  file_ = openat(folder_, name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  // Locked before it says anything, so that nobody takes it for left behind. Where locks do not work the next
  // ones leave it alone.
  if (file_ >= 0) (void)flock(file_, LOCK_EX | LOCK_NB);
  const std::string text = record_text(record);
  const bool written = file_ >= 0 && write(file_, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fsync(file_) == 0 && fsync(folder_) == 0;
  if (!written) log_debug("no probe marker: %s/%s: %s", folder.c_str(), name_.c_str(), std::strerror(errno));
}

ProbeMarker::~ProbeMarker() {
  if (file_ >= 0) {
    unlinkat(folder_, name_.c_str(), 0);
    close(file_);
  }
  if (folder_ >= 0) close(folder_);
}

std::string reset_text(const ProbeResets& resets) {
  std::string what, files;
  for (uint32_t p = 0; p < kPlacements; ++p) {
    if ((resets.placements >> p & 1) == 0) continue;
    what += (what.empty() ? "" : ", ") + std::string(name_of(static_cast<Placement>(p)));
  }
  for (const std::string& file : resets.files) files += " " + file;
  return "the machine went down while these GPUs were probed (" + what +
         "), which is not done again; to try it again, delete" + files;
}

ProbeResets find_probe_resets(const std::string& folder, std::span<const Facts> facts) noexcept try {
  ProbeResets resets;
  const int fd = folder.empty() ? -1 : open_folder(folder);
  DIR* const entries = fd < 0 ? nullptr : fdopendir(fd);
  if (entries == nullptr) {
    if (fd >= 0) close(fd);
    return resets;
  }
  const std::string boot_id = record_of(facts, Placement::kPush).boot_id;
  while (const dirent* entry = readdir(entries)) {
    if (!std::string_view(entry->d_name).starts_with(kPrefix)) continue;
    const int file = open_marker(fd, entry->d_name);
    if (file < 0) continue;
    const std::optional<ProbeRecord> record = parse_record(read_all(file));
    if (record ? record->boot_id == boot_id : abandoned(file)) {
      // Killed while it probed, and its lock with it: no news about the machine.
      if (flock(file, LOCK_EX | LOCK_NB) == 0) unlinkat(fd, entry->d_name, 0);
    } else if (record && reset_while_probing(*record, facts)) {
      resets.placements |= 1u << static_cast<uint32_t>(record->placement);
      resets.files.push_back(folder + "/" + entry->d_name);
    }
    close(file);
  }
  closedir(entries);
  return resets;
} catch (const std::exception&) {
  return {};
}

}  // namespace shunt
