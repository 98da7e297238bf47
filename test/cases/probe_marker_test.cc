// The marker's file: what it says, who reads it, and what is not taken for one.
#include "shim/engine/probe_marker.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "test/catch.h"

using namespace shunt;
namespace fs = std::filesystem;

// What was on disk, in the order in which it got there: the sizes of files, 0 for a folder.
static std::vector<off_t> synced;
extern "C" int fsync(int fd) {
  struct stat facts{};
  if (fstat(fd, &facts) == 0) synced.push_back(S_ISDIR(facts.st_mode) ? 0 : facts.st_size);
  return 0;
}

namespace {

constexpr const char* kBoot = "11111111-2222-3333-4444-555555555555";
constexpr const char* kLater = "99999999-2222-3333-4444-555555555555";

// GPUs by one byte each.
std::vector<Facts> machine(const char* boot_id, std::initializer_list<int> gpus) {
  std::vector<Facts> facts;
  for (const int gpu : gpus) {
    Facts f{};
    std::strcpy(f.boot_id, boot_id);
    std::memset(f.gpu, gpu, sizeof(f.gpu));
    facts.push_back(f);
  }
  return facts;
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/probe-marker-XXXXXX";
    root_ = mkdtemp(name);
    fs::create_directory(path());
  }
  ~Folder() { fs::remove_all(root_); }
  std::string path() const { return root_ + "/nccl-shunt"; }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(path() + "/" + name) << text;
    fs::permissions(path() + "/" + name, fs::perms(0600));
    return path() + "/" + name;
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path()), fs::directory_iterator()));
  }

 private:
  std::string root_;
};

std::string text_of(const char* boot_id, Placement placement = Placement::kPush) {
  return record_text(record_of(machine(boot_id, {1, 2, 3}), placement));
}

}  // namespace

TEST_CASE("a record says what it was made of, and nothing if it is not whole") {
  for (const Placement placement : {Placement::kPush, Placement::kPull, Placement::kHost}) {
    const std::string text = text_of(kBoot, placement);
    const auto record = parse_record(text);
    REQUIRE(record);
    CHECK(record->boot_id == kBoot);
    CHECK(record->placement == placement);
    CHECK(record->gpus == std::vector<std::string>{"01010101010101010101010101010101",
                                                   "02020202020202020202020202020202",
                                                   "03030303030303030303030303030303"});
    for (size_t length = 0; length < text.size(); ++length) CHECK_FALSE(parse_record(text.substr(0, length)));
    CHECK_FALSE(parse_record(text + "x"));
    CHECK_FALSE(parse_record(text + text));
  }
  std::string many = text_of(kBoot);
  for (int i = 0; i < 20; ++i) many.insert(many.rfind("end"), "gpu aa\n");
  CHECK_FALSE(parse_record(many));
  std::string odd = text_of(kBoot);
  odd.replace(odd.find("push"), 4, "pu\nh");
  CHECK_FALSE(parse_record(odd));
}

TEST_CASE("an earlier boot with two of the GPUs counts") {
  const ProbeRecord record = record_of(machine(kBoot, {1, 2, 3}), Placement::kPush);
  CHECK(reset_while_probing(record, machine(kLater, {1, 2, 3})));
  CHECK(reset_while_probing(record, machine(kLater, {7, 3, 8, 1})));
  CHECK_FALSE(reset_while_probing(record, machine(kBoot, {1, 2, 3})));
  CHECK_FALSE(reset_while_probing(record, machine(kLater, {3, 4})));
  CHECK_FALSE(reset_while_probing(record, machine(kLater, {4, 5})));  // another machine's home
  CHECK_FALSE(reset_while_probing(record, machine("", {1, 2})));      // no /proc
}

TEST_CASE("a marker lasts as long as the probe, and nobody takes it for left behind") {
  const Folder folder;
  const auto facts = machine(kBoot, {1, 2});
  {
    const ProbeMarker one(folder.path(), record_of(facts, Placement::kPush));
    const ProbeMarker two(folder.path(), record_of(facts, Placement::kPush));
    CHECK(folder.files() == 2);
    CHECK(find_probe_resets(folder.path(), facts).placements == 0);
    const pid_t other = fork();
    if (other == 0) _exit(find_probe_resets(folder.path(), facts).placements == 0 ? 0 : 1);
    int status = -1;
    REQUIRE(waitpid(other, &status, 0) == other);
    CHECK(status == 0);
    CHECK(folder.files() == 2);
    CHECK(find_probe_resets(folder.path(), machine(kLater, {1, 2})).placements == 1);
    CHECK(folder.files() == 2);
  }
  CHECK(folder.files() == 0);
  { const ProbeMarker unknown_boot(folder.path(), record_of(machine("", {1, 2}), Placement::kPush)); }
  { const ProbeMarker nowhere("", record_of(facts, Placement::kPush)); }
  { const ProbeMarker no_folder("/proc/none/nccl-shunt", record_of(facts, Placement::kPush)); }
  CHECK(folder.files() == 0);
}

TEST_CASE("a marker is on disk, name and all, before the probe begins") {
  const Folder folder;
  const ProbeRecord record = record_of(machine(kBoot, {1, 2}), Placement::kHost);
  synced.clear();
  const ProbeMarker marker(folder.path(), record);
  CHECK(synced == std::vector<off_t>{static_cast<off_t>(record_text(record).size()), 0});
}

TEST_CASE("what killed processes left since the last boot is deleted, of earlier ones it is told") {
  const Folder folder;
  folder.put("probing-1", text_of(kBoot));
  const std::string host = folder.put("probing-2", text_of(kLater, Placement::kHost));
  const std::string other = folder.put("profile.json", text_of(kLater));
  const ProbeResets resets = find_probe_resets(folder.path(), machine(kBoot, {1, 2}));
  CHECK(resets.placements == 1u << static_cast<uint32_t>(Placement::kHost));
  CHECK(resets.files == std::vector<std::string>{host});
  CHECK_FALSE(fs::exists(folder.path() + "/probing-1"));
  CHECK(fs::exists(other));
  CHECK(reset_text(resets).find("(host)") != std::string::npos);
  CHECK(reset_text(resets).find("delete " + host) != std::string::npos);
}

TEST_CASE("what was not written whole is deleted once it is old") {
  const Folder folder;
  const std::string part = folder.put("probing-1", text_of(kBoot).substr(0, 50));
  CHECK(find_probe_resets(folder.path(), machine(kBoot, {1, 2})).placements == 0);
  CHECK(fs::exists(part));
  fs::last_write_time(part, fs::last_write_time(part) - std::chrono::hours(2));
  CHECK(find_probe_resets(folder.path(), machine(kBoot, {1, 2})).placements == 0);
  CHECK_FALSE(fs::exists(part));
  // Of an earlier boot and whole: however old.
  const std::string whole = folder.put("probing-2", text_of(kLater));
  fs::last_write_time(whole, fs::last_write_time(whole) - std::chrono::hours(2));
  CHECK(find_probe_resets(folder.path(), machine(kBoot, {1, 2})).placements == 1);
  CHECK(fs::exists(whole));
}

TEST_CASE("what another user could have put there is not believed") {
  const Folder folder;
  const std::string text = text_of(kBoot);
  const auto resets = [&] { return find_probe_resets(folder.path(), machine(kLater, {1, 2})).placements; };
  const std::string good = folder.put("probing-1", text);
  REQUIRE(resets() == 1);
  fs::permissions(good, fs::perms(0620));
  CHECK(resets() == 0);
  fs::permissions(good, fs::perms(0600));
  fs::create_hard_link(good, folder.path() + "/other");
  CHECK(resets() == 0);
  fs::rename(good, folder.path() + "/target");
  fs::remove(folder.path() + "/other");
  fs::create_symlink(folder.path() + "/target", good);
  CHECK(resets() == 0);
  fs::remove(good);
  fs::create_directory(good);
  CHECK(resets() == 0);
  fs::remove(good);
  REQUIRE(mkfifo(good.c_str(), 0600) == 0);  // opening it must not wait for a writer
  CHECK(resets() == 0);
  fs::remove(good);
  folder.put("probing-1", std::string(1 << 20, 'x'));
  CHECK(resets() == 0);
  fs::rename(folder.path() + "/target", good);
  CHECK(resets() == 1);
  if (geteuid() == 0) {
    REQUIRE(chown(good.c_str(), 12345, 12345) == 0);
    CHECK(resets() == 0);
    REQUIRE(chown(good.c_str(), 0, 0) == 0);
    REQUIRE(chown(folder.path().c_str(), 12345, 12345) == 0);
    CHECK(resets() == 0);
    const size_t before = folder.files();
    const ProbeMarker marker(folder.path(), record_of(machine(kBoot, {1, 2}), Placement::kPush));
    CHECK(folder.files() == before);
  }
}

// As root with the HOME of somebody: what root made there the other could not use.
TEST_CASE("no folder is made in another user's") {
  const Folder folder;
  const std::string home = folder.path() + "/home";
  fs::create_directory(home);
  if (chown(home.c_str(), 12345, 12345) != 0) {
    WARN("only root can show it");
    return;
  }
  { const ProbeMarker marker(home + "/.cache/nccl-shunt", record_of(machine(kBoot, {1, 2}), Placement::kPush)); }
  CHECK(!fs::exists(home + "/.cache"));
  REQUIRE(chown(home.c_str(), geteuid(), getegid()) == 0);
  { const ProbeMarker marker(home + "/.cache/nccl-shunt", record_of(machine(kBoot, {1, 2}), Placement::kPush)); }
  CHECK(fs::exists(home + "/.cache/nccl-shunt"));
}
