#include "test/emulator/nccl/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "test/emulator/nccl/communicator.h"
#include "test/emulator/nccl/group.h"
#include "test/emulator/nccl/report.h"
#include "test/emulator/nccl/stream_order.h"
#include "test/emulator/nccl/variant.h"

namespace emu_nccl {
namespace {

void append(std::string line) {
  static const int kFile =
      ::open(settings().trace.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  line += '\n';
  if (kFile < 0 || ::write(kFile, line.data(), line.size()) < 0)
    shout("cannot write the trace to " + settings().trace);
}

std::string head(const char* function, const ncclComm* comm) {
  char text[256];
  int used = std::snprintf(text, sizeof(text), "lib=%s pid=%d tid=%ld fn=%s ", kVariant.name,
                           ::getpid(), ::syscall(SYS_gettid), function);
  std::string line(text, static_cast<size_t>(used));
  if (comm && comm->start_magic == kCommMagic && comm->ranks > 0) {
    used = std::snprintf(text, sizeof(text), "comm=%08x rank=%d/%d ", comm->core->id.load(),
                         comm->rank, comm->ranks);
    line.append(text, static_cast<size_t>(used));
  } else {
    line += "comm=- rank=- ";
  }
  return line + "depth=" + std::to_string(group_depth());
}

}  // namespace

void trace_call(const char* function, const ncclComm* comm) {
  if (tracing() && !asks_itself(comm)) append(head(function, comm));
}

void trace_operation(const char* function, const ncclComm* comm, size_t bytes, int type, int op,
                     int root, CUstream stream) {
  if (!tracing()) return;
  CaptureState capture;
  if (capture_state(stream, &capture) != ncclSuccess) capture.active = false;
  const char* op_name =
      op < 0 ? "-" : name_of_reduction(op > ncclAvg ? 5u : static_cast<unsigned>(op));
  append(head(function, comm) + " bytes=" + std::to_string(bytes) +
         " type=" + name_of(static_cast<ncclDataType_t>(type)) + " op=" + op_name +
         " root=" + std::to_string(root) + " capture=" + (capture.active ? "1" : "0"));
}

}  // namespace emu_nccl
