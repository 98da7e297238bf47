// What every worker program does first and last.
#pragma once

#include <nccl.h>

#include <functional>
#include <vector>

#include "tools/bench/board.h"
#include "tools/bench/channel.h"
#include "tools/bench/options.h"

namespace shunt::bench {

// Tells the launcher of driver, NCCL and GPUs.
void send_facts(Channel& channel, const Options& options, const std::vector<uint32_t>& ranks);

// The communicator's id, which the worker with rank 0 makes and the launcher passes on.
ncclUniqueId exchange_id(Channel& channel, const std::vector<uint32_t>& ranks);

// Says what went wrong and ends the process at once: other threads may wait for this one for ever.
[[noreturn]] void fail(Channel& channel, const char* what);

// main(): reads the ranks, calls `work`, says "done", or why not.
using Work = std::function<void(Channel&, Board&, const std::vector<uint32_t>& ranks)>;
int worker_main(int argc, char** argv, const Work& work);

}  // namespace shunt::bench
