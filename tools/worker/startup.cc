#include "tools/worker/startup.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tools/bench/text.h"
#include "tools/worker/driver.h"
#include "tools/worker/nccl_paths.h"

namespace shunt::bench {

void send_facts(Channel& channel, const Options& options, const std::vector<uint32_t>& ranks) {
  const DriverFacts driver = driver_facts();
  channel.send(Fields("facts")
                   .set("cuda_version", static_cast<uint64_t>(driver.cuda_version))
                   .set("driver_version", driver.driver_version)
                   .set("nccl_version", nccl_version_text())
                   .set("public", public_provider())
                   .set("real", real_provider())
                   .set("real_file", real_file()));
  for (const uint32_t rank : ranks) {
    channel.send(Fields("gpu")
                     .set("rank", uint64_t{rank})
                     .set("name", device_name(options.device_of(rank))));
  }
}

ncclUniqueId exchange_id(Channel& channel, const std::vector<uint32_t>& ranks) {
  if (ranks[0] == 0) {
    ncclUniqueId id;
    SHUNT_NCCL(ncclGetUniqueId(&id));
    channel.send(Fields("id").set("hex", to_hex(id)));
  }
  return unique_id_from(channel.receive().text("hex"));
}

[[noreturn]] void fail(Channel& channel, const char* what) {
  try {
    channel.send(Fields("error").set("text", what));
  } catch (const std::exception&) {  // the launcher is gone: nobody to tell
  }
  std::_Exit(EXIT_FAILURE);
}

int worker_main(int argc, char** argv, const Work& work) {
  if (argc < 2) {
    std::fprintf(stderr, "%s: started by `nccl-shunt`, not by hand\n", argv[0]);
    return EXIT_FAILURE;
  }
  std::vector<uint32_t> ranks;
  Channel channel{FileDescriptor(kChannelFd)};
  try {
    for (int i = 1; i < argc; ++i) ranks.push_back(static_cast<uint32_t>(parse_number(argv[i])));
    Board board = Board::open(kBoardFd);
    work(channel, board, ranks);
    channel.send(Fields("done"));
  } catch (const std::exception& error) {
    fail(channel, error.what());
  }
  return EXIT_SUCCESS;
}

}  // namespace shunt::bench
