#include "tools/worker/team.h"

#include <stdexcept>
#include <string>

namespace shunt::bench {

void Communicator::init(uint32_t ranks, const ncclUniqueId& id, uint32_t rank) {
  SHUNT_NCCL(ncclCommInitRank(&comm_, static_cast<int>(ranks), id, static_cast<int>(rank)));
}

void Communicator::destroy() { SHUNT_NCCL(ncclCommDestroy(std::exchange(comm_, nullptr))); }

Team::Team(const Options& options, Board& board, Channel& channel,
           const std::vector<uint32_t>& ranks)
    : options_(options), board_(board), channel_(channel) {
  for (const uint32_t rank : ranks) {
    board_.set_phase(rank, "open GPU " + std::to_string(options.device_of(rank)));
    PrimaryContext context(options.device_of(rank));
    context.make_current();
    CUdeviceptr meeting = 0;
    SHUNT_DRIVER(cuMemAlloc(&meeting, sizeof(float)));
    SHUNT_DRIVER(cuMemsetD32(meeting, 0, 1));
    members_.push_back({rank, std::move(context), make_stream(), {}, DeviceMemory(meeting)});
  }
}

Team::~Team() {
  // A context is current when its stream goes.
  while (!members_.empty()) {
    cuStreamSynchronize(members_.back().stream.get());
    members_.pop_back();
  }
}

void Team::each(const std::function<void(size_t, Member&)>& action) {
  for (size_t i = 0; i < members_.size(); ++i) {
    members_[i].context.make_current();
    action(i, members_[i]);
  }
}

void Team::connect(const ncclUniqueId& id) {
  phase("make the communicator");
  if (size() > 1) SHUNT_NCCL(ncclGroupStart());
  each([&](size_t, Member& member) { member.comm.init(options_.ranks, id, member.rank); });
  if (size() > 1) SHUNT_NCCL(ncclGroupEnd());
  phase("made the communicator");
}

void Team::finish() {
  barrier();
  Fields message("calls");
  const Count& count = counts_[static_cast<uint32_t>(Path::kShunt)];
  for (const auto& [bytes, calls] : count.accepted) message.set(std::to_string(bytes), calls);
  message.set("refused", count.refused);
  channel_.send(message);
  phase("destroy the communicator");
  each([](size_t, Member& member) { member.comm.destroy(); });
  phase("finished");
}

ncclResult_t Team::enqueue_all(Path path, const Call& call) {
  const auto one = [&](size_t i) {
    Member& member = members_[i];
    return bench::all_reduce(path, call.send[i], call.receive[i], call.count,
                             static_cast<ncclDataType_t>(call.type),
                             static_cast<ncclRedOp_t>(call.op), member.comm.get(),
                             reinterpret_cast<cudaStream_t>(member.stream.get()));
  };
  if (size() == 1) return one(0);
  SHUNT_NCCL(group_start(path));
  ncclResult_t first = ncclSuccess;
  for (size_t i = 0; i < size(); ++i) {
    members_[i].context.make_current();
    const ncclResult_t code = one(i);
    if (first == ncclSuccess) first = code;
  }
  const ncclResult_t code = group_end(path);
  return first != ncclSuccess ? first : code;
}

ncclResult_t Team::all_reduce(Path path, const Call& call) {
  const ncclResult_t code = enqueue_all(path, call);
  Count& count = counts_[static_cast<uint32_t>(path)];
  (code == ncclSuccess ? count.accepted[call.count * size_of(call.type)] : count.refused) += size();
  if (code != ncclSuccess && code != ncclInvalidArgument) {
    nccl_check(code, path == Path::kShunt ? "ncclAllReduce" : "pncclAllReduce");
  }
  return code;
}

std::vector<GraphExec> Team::capture(const std::function<ncclResult_t()>& enqueue,
                                     ncclResult_t& code) {
  // Thread-local: another thread of this process may allocate meanwhile.
  each([](size_t, Member& member) {
    SHUNT_DRIVER(cuStreamBeginCapture(member.stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  });
  code = enqueue();
  // Every capture of this thread ends before the first graph is made: that is not allowed while another
  // stream still captures.
  std::vector<Graph> captured;
  each([&](size_t, Member& member) {
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(member.stream.get(), &graph);
    captured.emplace_back(graph);
    if (code == ncclSuccess) SHUNT_DRIVER(ended);  // if refused, what was captured does not matter
  });
  std::vector<GraphExec> graphs;
  if (code != ncclSuccess) return graphs;
  each([&](size_t i, Member&) { graphs.push_back(instantiate(std::move(captured[i]))); });
  return graphs;
}

void Team::launch(const std::vector<GraphExec>& graphs) {
  each([&](size_t i, Member& member) {
    SHUNT_DRIVER(cuGraphLaunch(graphs[i].get(), member.stream.get()));
  });
}

void Team::meet() {
  Call call{{}, {}, 1, DataType::kFloat32, ReduceOp::kSum};
  for (const Member& member : members_) {
    call.send.push_back(reinterpret_cast<const void*>(member.meeting.get()));
    call.receive.push_back(reinterpret_cast<void*>(member.meeting.get()));
  }
  nccl_check(enqueue_all(Path::kNccl, call), "pncclAllReduce");
}

void Team::synchronize() {
  each([](size_t, Member& member) { SHUNT_DRIVER(cuStreamSynchronize(member.stream.get())); });
}

void Team::barrier() { board_.barrier(members_[0].rank); }

void Team::agree(ncclResult_t code) {
  const uint32_t worst = board_.largest(members_[0].rank, static_cast<uint32_t>(code));
  if (worst == static_cast<uint32_t>(code)) return;
  throw std::runtime_error("the call returned " + std::to_string(static_cast<int>(code)) +
                           " here and " + std::to_string(worst) + " on another rank");
}

void Team::phase(std::string_view text) {
  for (const Member& member : members_) board_.set_phase(member.rank, text);
}

}  // namespace shunt::bench
