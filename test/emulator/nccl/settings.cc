#include "test/emulator/nccl/settings.h"

#include <cstdlib>
#include <cstring>

namespace emu_nccl {
namespace {

long number(const char* name, long otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::strtol(text, nullptr, 10) : otherwise;
}

Settings read() {
  Settings s;
  if (const char* file = std::getenv("EMU_NCCL_TRACE")) s.trace = file;
  s.version = static_cast<int>(number("EMU_NCCL_VERSION", 0));
  s.microseconds = number("EMU_NCCL_US", 0);
  if (const long bytes = number("EMU_NCCL_NULL", 0); bytes > 0)
    s.null_from = static_cast<size_t>(bytes);
  const char* debug = std::getenv("NCCL_DEBUG");
  s.warn = debug && std::strcmp(debug, "VERSION") != 0 && std::strcmp(debug, "NONE") != 0;
  s.check_pointers = number("NCCL_CHECK_POINTERS", 0) != 0;
  s.blocking = number("NCCL_COMM_BLOCKING", 1) != 0;
  return s;
}

}  // namespace

const Settings& settings() {
  static const Settings kSettings = read();
  return kSettings;
}

}  // namespace emu_nccl
