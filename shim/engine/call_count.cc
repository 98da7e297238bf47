#include "shim/engine/call_count.h"

#include <atomic>

#include "shim/engine/communicator.h"

namespace shunt {
namespace {
std::atomic<unsigned long long> shunted_calls{0};
std::atomic<unsigned long long> forwarded_calls{0};
}  // namespace

Counters counters() { return {shunted_calls.load(), forwarded_calls.load(), Communicator::ever_shunting()}; }

void count_call(Communicator* communicator, size_t count, ncclDataType_t type, ncclRedOp_t op,
                bool shunted) noexcept {
  (shunted ? shunted_calls : forwarded_calls).fetch_add(1, std::memory_order_relaxed);
  if (communicator == nullptr || !communicator->shunting()) return;
  const bool known = type >= 0 && static_cast<int>(type) < static_cast<int>(kDataTypes);
  const size_t size = known ? size_of(static_cast<DataType>(type)) : 1;
  communicator->note_all_reduce(count * size, static_cast<int>(type), static_cast<int>(op), shunted);
}

}  // namespace shunt
