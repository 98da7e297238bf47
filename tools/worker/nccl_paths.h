// The two ways to NCCL in one process. NCCL exports every ncclX also as pncclX, its profiling
// interface: ncclX is whatever the dynamic linker bound first (the library under test when it is
// preloaded), pncclX is always NCCL's own.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <string>
#include <vector>

namespace shunt::bench {

enum class Path : uint32_t { kNccl = 0, kShunt = 1 };
inline constexpr uint32_t kPaths = 2;
const char* name_of(Path path);  // "nccl", "shunt": also the words of the messages to the launcher

// Throws std::runtime_error with NCCL's own text.
void nccl_check(ncclResult_t code, const char* call);
#define SHUNT_NCCL(call) ::shunt::bench::nccl_check((call), #call)

ncclResult_t all_reduce(Path path, const void* send, void* receive, uint64_t count,
                        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t group_start(Path path);
ncclResult_t group_end(Path path);

// File name (no folder) of the library that ncclAllReduce, resp. pncclAllReduce, comes from.
std::string public_provider();
std::string real_provider();
std::string real_file();  // the latter's path
std::string nccl_version_text();  // of the loaded library: "2.28.9"

std::string to_hex(const ncclUniqueId& id);
ncclUniqueId unique_id_from(const std::string& hex);

}  // namespace shunt::bench
