// shunt-settings-table: prints the README's table of settings.
// shunt-settings-table --check README.md: exit status 0 where the file has this table between its
// markers, 1 where it has another, 77 where it has no markers or does not exist.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "shim/engine/settings.h"

namespace {

constexpr char kBegin[] = "<!-- settings -->\n";
constexpr char kEnd[] = "<!-- /settings -->";
constexpr int kSkipped = 77;

int check(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t begin = text.find(kBegin);
  const size_t end = text.find(kEnd);
  if (begin == std::string::npos && end == std::string::npos) {
    std::printf("%s: no table of settings\n", path);
    return kSkipped;
  }
  const size_t first = begin + std::strlen(kBegin);
  if (begin == std::string::npos || end == std::string::npos || end < first) {
    std::printf("%s: %s without %s or in the wrong order\n", path, kBegin, kEnd);
    return 1;
  }
  if (text.substr(first, end - first) == shunt::settings_markdown()) return 0;
  std::printf("%s: put this between %s and %s:\n%s", path, "<!-- settings -->", kEnd,
              shunt::settings_markdown().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--check") == 0) return check(argv[2]);
  if (argc != 1) {
    std::fprintf(stderr, "usage: %s [--check README.md]\n", argv[0]);
    return 2;
  }
  std::fputs(shunt::settings_markdown().c_str(), stdout);
  return 0;
}
