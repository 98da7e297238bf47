// Files that somebody else may have put there.
#include "plugin/profile_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include "plugin/profile_json.h"
#include "plugin/test/samples.h"
#include "test/catch.h"

using namespace shunt::tuner;

namespace {

// The reason why it is not read; "" if it is, "absent" if it is not there.
std::string refusal(const std::string& path) {
  try {
    return read_profile_file(path) ? "" : "absent";
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a plain file of this user's is read whole") {
  const Folder folder;
  const std::string path = folder.write("a.json", std::string("a\0b", 3));
  CHECK(read_profile_file(path) == std::string("a\0b", 3));
  CHECK(read_profile_file(folder.write("empty.json", "")) == std::string());
  CHECK(refusal(folder.file("none.json")) == "absent");
  CHECK(refusal(path + "/below") == "absent");
}

TEST_CASE("anything else is refused, and nothing blocks") {
  const Folder folder;
  const std::string good = folder.write("good.json", "{}");
  CHECK(refusal(good) == "");

  REQUIRE(symlink(good.c_str(), folder.file("link.json").c_str()) == 0);
  CHECK(refusal(folder.file("link.json")) == "a symbolic link");
  REQUIRE(mkfifo(folder.file("pipe.json").c_str(), 0600) == 0);
  CHECK(refusal(folder.file("pipe.json")) == "not a plain file");  // open() would wait for ever
  CHECK(refusal(folder.path()) == "not a plain file");
  CHECK(refusal("/dev/zero") == "not a plain file");
  CHECK(refusal(folder.write("group.json", "{}", 0620)) == "writable by others");
  CHECK(refusal(folder.write("world.json", "{}", 0602)) == "writable by others");

  const std::string large = folder.write("large.json", "");
  REQUIRE(truncate(large.c_str(), static_cast<off_t>(kMaxProfileText) + 1) == 0);
  CHECK(refusal(large) == "larger than a profile may be");
  REQUIRE(truncate(large.c_str(), off_t{1} << 40) == 0);
  CHECK(refusal(large) == "larger than a profile may be");

  if (geteuid() != 0) return;  // only root can give files away
  const std::string foreign = folder.write("foreign.json", "{}");
  REQUIRE(chown(foreign.c_str(), 12345, 12345) == 0);
  CHECK(refusal(foreign) == "belongs to another user");
}

TEST_CASE("a profile is written as a new file under its name") {
  const Folder folder;
  const std::string path = folder.file("new/sub/a.json");
  write_profile_file(path, "one");
  CHECK(read_profile_file(path) == "one");
  struct stat before {
  }, after{};
  REQUIRE(stat(path.c_str(), &before) == 0);
  write_profile_file(path, "two");
  REQUIRE(stat(path.c_str(), &after) == 0);
  CHECK(read_profile_file(path) == "two");
  CHECK(before.st_ino != after.st_ino);  // a reader of the old file goes on reading the old text
  CHECK((after.st_mode & 0777) == 0644);
  CHECK_THROWS_AS(write_profile_file("/proc/nccl-shunt/a.json", "x"), std::runtime_error);
}
