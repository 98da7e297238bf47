// A library that stands in front of NCCL as the product does, and does what SHUNT_TEST_FAULT names
// to the calls of rank 0 (bf16 only): the benchmark must find every one of them. Faults are
// enqueued on the stream behind NCCL's own work, so that they are captured into graphs too.
#include <cuda.h>
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::atomic<uint64_t> g_shunted{0}, g_calls{0};

std::string fault() {
  const char* name = std::getenv("SHUNT_TEST_FAULT");
  return name == nullptr ? "" : name;
}

bool is_rank_0(ncclComm_t comm) {
  int rank = -1;
  return ncclCommUserRank(comm, &rank) == ncclSuccess && rank == 0;
}

// Counters where the product prints them.
struct AtExit {
  ~AtExit() {
    if (g_calls == 0) return;
    const uint64_t shunted = g_shunted + (fault() == "miscount" ? 1 : 0);
    std::fprintf(stderr, "faulty: loaded\nfaulty: stats shunted=%llu forwarded=%llu\n",
                 static_cast<unsigned long long>(shunted),
                 static_cast<unsigned long long>(g_calls - g_shunted));
  }
} g_at_exit;

}  // namespace

extern "C" ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count,
                                      ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream) {
  const uint64_t call = ++g_calls;
  const std::string name = fault();
  const bool mine = is_rank_0(comm);
  if (mine && name == "die" && call > 5) std::abort();
  if (mine && name == "hang" && call > 5) pause();
  if (name == "refuse" || (mine && name == "refuse_alone")) return ncclInvalidArgument;
  const ncclResult_t result = pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream);
  ++g_shunted;
  if (!mine) return result;
  const auto bytes = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  const auto cu_stream = reinterpret_cast<CUstream>(stream);
  const CUdeviceptr output = bytes(recvbuff);
  if (name == "last_byte") cuMemsetD8Async(output + count * 2 - 1, 0x41, 1, cu_stream);
  if (name == "after") cuMemsetD8Async(output + count * 2, 0x41, 1, cu_stream);
  if (name == "before") cuMemsetD8Async(output - 1, 0x41, 1, cu_stream);
  if (name == "input") cuMemsetD8Async(bytes(sendbuff), 0x41, 1, cu_stream);
  return result;
}
