#include "tools/worker/nccl_paths.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

namespace shunt::bench {
namespace {

std::string file_of(void* address) {
  Dl_info info;
  return dladdr(address, &info) == 0 || info.dli_fname == nullptr ? "?" : info.dli_fname;
}

std::string name_of_file(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace

const char* name_of(Path path) { return path == Path::kShunt ? "shunt" : "nccl"; }

void nccl_check(ncclResult_t code, const char* call) {
  if (code == ncclSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(code) + " (" +
                           std::to_string(static_cast<int>(code)) + ")");
}

ncclResult_t all_reduce(Path path, const void* send, void* receive, uint64_t count,
                        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return path == Path::kShunt ? ncclAllReduce(send, receive, count, type, op, comm, stream)
                              : pncclAllReduce(send, receive, count, type, op, comm, stream);
}

ncclResult_t group_start(Path path) {
  return path == Path::kShunt ? ncclGroupStart() : pncclGroupStart();
}

ncclResult_t group_end(Path path) {
  return path == Path::kShunt ? ncclGroupEnd() : pncclGroupEnd();
}

std::string public_provider() { return name_of_file(file_of(reinterpret_cast<void*>(&ncclAllReduce))); }

std::string real_provider() { return name_of_file(real_file()); }

std::string real_file() { return file_of(reinterpret_cast<void*>(&pncclAllReduce)); }

std::string nccl_version_text() {
  int version = 0;
  SHUNT_NCCL(ncclGetVersion(&version));
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string to_hex(const ncclUniqueId& id) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : id.internal) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

ncclUniqueId unique_id_from(const std::string& hex) {
  ncclUniqueId id;
  if (hex.size() != 2 * sizeof id.internal) throw std::runtime_error("malformed unique id");
  for (size_t i = 0; i < sizeof id.internal; ++i) {
    id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

}  // namespace shunt::bench
