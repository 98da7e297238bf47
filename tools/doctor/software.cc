#include "tools/doctor/software.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "plugin/machine.h"
#include "shim/engine/settings.h"

extern "C" char** environ;

namespace shunt::doctor {
namespace {

std::string file_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : "";
}

// The CUDA driver API without its header: this program is built and run where there is none of it.
class DriverCalls {
 public:
  explicit DriverCalls(void* handle) : handle_(handle) {}
  template <typename... Args>
  void call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, name));
    if (function == nullptr) throw std::runtime_error(std::string("it lacks ") + name);
    if (const int code = function(args...); code != 0) {
      throw std::runtime_error(std::string(name) + ": " + text(code) + " (" + std::to_string(code) +
                               ")");
    }
  }

 private:
  std::string text(int code) const {
    const auto name =
        reinterpret_cast<int (*)(int, const char**)>(dlsym(handle_, "cuGetErrorName"));
    const char* found = nullptr;
    return name != nullptr && name(code, &found) == 0 && found != nullptr ? found : "error";
  }
  void* handle_;
};

void ask(const DriverCalls& cuda, Driver& driver) {
  cuda.call("cuDriverGetVersion", &driver.cuda_version);
  cuda.call("cuInit", 0u);
  int count = 0;
  cuda.call("cuDeviceGetCount", &count);
  for (int i = 0; i < count; ++i) {
    char name[256] = {}, bus_id[32] = {};
    cuda.call("cuDeviceGetName", static_cast<char*>(name), 255, i);
    cuda.call("cuDeviceGetPCIBusId", static_cast<char*>(bus_id), 31, i);
    for (char* c = bus_id; *c != '\0'; ++c)
      *c = static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    driver.gpus.push_back({name, bus_id});
  }
  for (int a = 0; a < count; ++a) {
    driver.peer_access.emplace_back();
    for (int b = 0; b < count; ++b) {
      int can = 0;
      if (a != b) cuda.call("cuDeviceCanAccessPeer", &can, a, b);
      driver.peer_access.back().push_back(can != 0);
    }
  }
}

// What the program printed to stdout and stderr; throws if it cannot be started.
std::string output_of(const std::vector<std::string>& program, const std::string& ld_preload) {
  std::vector<std::string> environment = {"LD_PRELOAD=" + ld_preload};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment.push_back(*entry);
  }
  const auto pointers = [](const std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  };
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, program[0].c_str(), &actions, nullptr,
                                 pointers(program).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; error == 0 && (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  if (error != 0) throw std::runtime_error(program[0] + ": " + std::strerror(error));
  waitpid(pid, nullptr, 0);
  return text;
}

}  // namespace

Driver open_driver() {
  Driver driver;
  void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    driver.missing = true;
    driver.error = dlerror();
    return driver;
  }
  driver.file = file_of(handle);
  try {
    ask(DriverCalls(handle), driver);
  } catch (const std::exception& error) {
    driver.error = error.what();
  }
  return driver;
}

Nccl open_nccl() {
  const std::string setting = parse_settings([](const char* name) -> const char* {
                                return std::getenv(name);
                              }).settings.nccl;
  Nccl nccl;
  void* const handle =
      dlopen(setting.empty() ? "libnccl.so.2" : setting.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    nccl.error = dlerror();
    return nccl;
  }
  nccl.file = file_of(handle);
  int version = 0;
  const auto get = reinterpret_cast<int (*)(int*)>(dlsym(handle, "ncclGetVersion"));
  if (get != nullptr && get(&version) == 0) nccl.version = tuner::nccl_version_text(version);
  if (nccl.version.empty()) nccl.error = nccl.file + " does not tell its version";
  return nccl;
}

std::string try_preload(const std::string& library, const std::string& ld_preload) {
  if (library.find_first_of(" :") != std::string::npos) {
    return "LD_PRELOAD cannot name '" + library +
           "': move it to a folder without blanks and colons";
  }
  try {
    const std::string maps = output_of({"cat", "/proc/self/maps"}, ld_preload);
    // A program that was started without the library shows what the dynamic linker said instead.
    if (maps.find(std::filesystem::path(library).filename().string() + "\n") == std::string::npos ||
        maps.find("cannot be preloaded") != std::string::npos) {
      return "a program that was started with it has not loaded it: " +
             maps.substr(0, maps.find('\n'));
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  const auto engine = std::filesystem::path(library).replace_filename("libnccl-shunt-engine.so");
  // As the library opens it when a program first uses NCCL. Nothing of it is called here.
  if (dlopen(engine.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) return dlerror();
  return "";
}

}  // namespace shunt::doctor
