#include "test/cases/client.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cases {
namespace {

Shared& map_shared() {
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED,
                  number_of("CASES_SHARED"), 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap");
  return *static_cast<Shared*>(at);
}

}  // namespace

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) {
    throw std::runtime_error(std::string(variable) + " is not set: started by hand?");
  }
  return std::atoi(text);
}

Rank::Rank(int device)
    : rank(number_of("CASES_RANK")), ranks(number_of("CASES_RANKS")), shared(map_shared()) {
  std::signal(SIGALRM, SIG_DFL);
  alarm(static_cast<unsigned>(number_of("CASES_LIMIT")));
  shared.pids[rank].store(getpid());
  if (device != -2) use_device(device < 0 ? rank : device);
}

void Rank::use_device(int device) {
  CUdevice handle = 0;
  CU(cuInit(0));
  CU(cuDeviceGet(&handle, std::getenv("FAULTY_GPU") != nullptr ? 0 : device));
  CU(cuDevicePrimaryCtxRetain(&context, handle));
  CU(cuCtxSetCurrent(context));
}

ncclUniqueId Rank::unique_id(int slot) const {
  Shared::Id& entry = shared.ids[slot];
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&entry.id));
    entry.ready.store(1);
  }
  wait_until([&] { return entry.ready.load() != 0; }, "the unique id");
  return entry.id;
}

ncclComm_t Rank::connect(int slot, int ranks_of_it, ncclConfig_t* config) const {
  const ncclUniqueId id = unique_id(slot);
  const int size = ranks_of_it == 0 ? ranks : ranks_of_it;
  ncclComm_t comm = nullptr;
  if (config != nullptr) {
    NCCL(ncclCommInitRankConfig(&comm, size, id, rank, config));
  } else {
    NCCL(ncclCommInitRank(&comm, size, id, rank));
  }
  return comm;
}

void Rank::barrier(double seconds) const {
  const uint32_t turn = shared.arrived[rank].fetch_add(1) + 1;
  for (int peer = 0; peer < ranks; ++peer) {
    wait_until([&] { return shared.arrived[peer].load() >= turn; },
               "rank " + std::to_string(peer) + " at a barrier", seconds);
  }
}

void Rank::wait_for(int flag, uint32_t value, double seconds) const {
  wait_until([&] { return shared.flags[flag].load() >= value; }, "flag " + std::to_string(flag),
             seconds);
}

CUresult Stream::end(double seconds) const {
  Patience patience(seconds);
  CUresult result;
  int turn = 0;
  while ((result = cuStreamQuery(handle_)) == CUDA_ERROR_NOT_READY) {
    if (patience.over()) break;
    if (++turn > 20) std::this_thread::sleep_for(std::chrono::microseconds(100));
    std::this_thread::yield();
  }
  return result;
}

void Memory::put(const Bytes& data, size_t offset) const {
  if (!data.empty()) CU(cuMemcpyHtoD(address_ + offset, data.data(), data.size()));
}

Bytes Memory::get(size_t bytes, size_t offset) const {
  Bytes data(bytes);
  if (bytes != 0) CU(cuMemcpyDtoH(data.data(), address_ + offset, bytes));
  return data;
}

void Memory::fill(unsigned char byte) const { put(Bytes(bytes_, byte)); }

Graph::Graph(const Stream& stream, const std::function<void()>& work, CUstreamCaptureMode mode) {
  CUgraph graph = nullptr;
  CU(cuStreamBeginCapture(stream, mode));
  work();
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphInstantiateWithFlags(&exec_, graph, 0));
  CU(cuGraphDestroy(graph));
}

void done(const Rank& rank, std::initializer_list<ncclComm_t> comms) {
  std::puts("all right");
  rank.barrier();
  for (const ncclComm_t comm : comms) NCCL(ncclCommDestroy(comm));
}

float exact_input(int rank, size_t i, uint32_t round) {
  uint32_t h = static_cast<uint32_t>(i) * 2654435761u ^ static_cast<uint32_t>(rank) * 40503u ^
               round * 2246822519u;
  h ^= h >> 15;
  h *= 2654435761u;
  return static_cast<float>(h >> 16) - 32768;
}

std::vector<float> exact_inputs(int rank, size_t count, uint32_t round) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = exact_input(rank, i, round);
  return values;
}

std::vector<float> exact_sums(int ranks, size_t count, uint32_t round) {
  std::vector<float> sums(count, 0);
  for (int r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < count; ++i) sums[i] += exact_input(r, i, round);
  }
  return sums;
}

Bytes as_bytes(const std::vector<float>& values) {
  Bytes bytes(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

size_t all_reduce_once(const Rank& rank, ncclComm_t comm, const Stream& stream, size_t count,
                       uint32_t round) {
  Memory send(count * sizeof(float)), recv(count * sizeof(float));
  send.put(as_bytes(exact_inputs(rank.rank, count, round)));
  recv.fill(0x7b);
  NCCL(ncclAllReduce(send.at(), recv.at(), count, ncclFloat32, ncclSum, comm, stream));
  stream.wait();
  const Bytes got = recv.get(count * sizeof(float));
  int ranks = 0;
  NCCL(ncclCommCount(comm, &ranks));
  const Bytes want = as_bytes(exact_sums(ranks, count, round));
  size_t wrong = 0;
  for (size_t at = 0; at < got.size(); at += 4) wrong += std::memcmp(&got[at], &want[at], 4) != 0;
  return wrong;
}

}  // namespace cases
