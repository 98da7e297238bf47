#include "settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emu {
namespace {

std::string text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> split(const std::string& list, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < list.size()) {
    size_t end = list.find(separator, begin);
    if (end == std::string::npos) end = list.size();
    if (end > begin) parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void complain(const char* name, const std::string& part) {
  std::fprintf(stderr, "emulated cuda: %s: cannot read \"%s\"\n", name, part.c_str());
  std::abort();  // a fault that is silently not injected makes a test pass for nothing
}

int gpu_number(const char* name, const std::string& part) {
  if (part == "*") return -1;
  char* end = nullptr;
  const long value = std::strtol(part.c_str(), &end, 10);
  if (part.empty() || *end != '\0' || value < 0) complain(name, part);
  return static_cast<int>(value);
}

GpuPair pair(const char* name, const std::string& part, char separator) {
  if (part == "*") return {-1, -1};
  const size_t at = part.find(separator);
  if (at == std::string::npos) complain(name, part);
  return {gpu_number(name, part.substr(0, at)), gpu_number(name, part.substr(at + 1))};
}

std::vector<GpuPair> pairs(const char* name, char separator) {
  std::vector<GpuPair> result;
  for (const std::string& part : split(text(name), ',')) {
    result.push_back(pair(name, part, separator));
  }
  return result;
}

std::vector<StoreFault> store_faults(const char* name) {
  std::vector<StoreFault> result;
  for (const std::string& item : split(text(name), ',')) {
    const std::vector<std::string> parts = split(item, ':');
    StoreFault fault{pair(name, parts.front(), '>')};
    for (size_t i = 1; i < parts.size(); ++i) {
      if (parts[i].rfind("above=", 0) == 0) {
        fault.above = std::strtoull(parts[i].c_str() + 6, nullptr, 0);
      } else if (parts[i].rfind("after=", 0) == 0) {
        fault.after = std::strtoull(parts[i].c_str() + 6, nullptr, 0);
      } else if (parts[i].rfind("kernel=", 0) == 0) {
        fault.kernel = parts[i].substr(7);
      } else if (parts[i] == "graph") {
        fault.graph_only = true;
      } else {
        complain(name, item);
      }
    }
    result.push_back(fault);
  }
  return result;
}

std::vector<KernelDelay> kernel_delays(const char* name) {
  std::vector<KernelDelay> result;
  for (const std::string& item : split(text(name), ',')) {
    const GpuPair both = pair(name, item, ':');
    result.push_back({both.from, static_cast<uint32_t>(both.to)});
  }
  return result;
}

bool flag(const char* name) {
  const std::string value = text(name);
  return !value.empty() && value != "0";
}

Settings read() {
  Settings s;
  s.gpus = static_cast<int>(number_from_environment("EMU_GPUS", s.gpus));
  s.memory =
      static_cast<size_t>(number_from_environment("EMU_MEMORY", static_cast<long long>(s.memory)));
  s.hostile = static_cast<uint64_t>(number_from_environment("EMU_HOSTILE", 0));
  s.drop = store_faults("EMU_DROP");
  s.corrupt = store_faults("EMU_CORRUPT");
  s.no_p2p = pairs("EMU_NO_P2P", '>');
  s.nvlink = pairs("EMU_NVLINK", '-');
  for (const std::string& part : split(text("EMU_IPC_FAIL"), ',')) {
    s.ipc_fail.push_back(gpu_number("EMU_IPC_FAIL", part));
  }
  s.delays = kernel_delays("EMU_KERNEL_DELAY_US");
  s.no_ipc = flag("EMU_NO_IPC");
  s.host_alloc_fail = flag("EMU_HOST_ALLOC_FAIL");
  s.no_kernel_image = flag("EMU_NO_KERNEL_IMAGE");
  s.strict = number_from_environment("EMU_STRICT", 1) != 0;
  s.lazy_loading = text("CUDA_MODULE_LOADING") != "EAGER";
  s.launch_blocking = flag("CUDA_LAUNCH_BLOCKING");
  if (const std::string limit = text("EMU_ALLOC_FAIL_ABOVE"); !limit.empty()) {
    s.alloc_fail_above = std::strtoull(limit.c_str(), nullptr, 0);
  }
  s.trace = text("EMU_TRACE");
  return s;
}

}  // namespace

long long number_from_environment(const char* name, long long otherwise) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return otherwise;
  char* end = nullptr;
  const long long number = std::strtoll(value, &end, 0);
  if (*end != '\0') complain(name, value);
  return number;
}

const Settings& settings() {
  // Never destroyed: worker threads read it while the process exits.
  static const Settings& instance = *new Settings(read());
  return instance;
}

}  // namespace emu
