#include "shim/engine/call_ring.h"

#include <algorithm>

#include "kernels/datatype.h"
#include "shim/engine/log.h"

namespace shunt {

std::string CallRing::text(uint64_t most) const {
  const uint64_t calls = calls_.load(std::memory_order_acquire);
  std::string text = format("%llu all-reduces, the last ones: ", static_cast<unsigned long long>(calls));
  const uint64_t shown = std::min({most, calls, kCalls});
  for (uint64_t call = calls - shown + 1; call <= calls; ++call) {
    const Entry& entry = entries_[call % kCalls];
    if (entry.call.load(std::memory_order_acquire) != call) continue;
    const uint64_t bytes = entry.bytes.load(std::memory_order_relaxed);
    const uint64_t what = entry.what.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.call.load(std::memory_order_relaxed) != call) continue;  // overwritten meanwhile
    const auto type = static_cast<uint32_t>(what >> 16 & 0xffff), op = static_cast<uint32_t>(what & 0xffff);
    const auto number = static_cast<uint32_t>(what >> 32);
    text += format("%llu: %llu ", static_cast<unsigned long long>(call), static_cast<unsigned long long>(bytes));
    text += type < kDataTypes ? name_of(static_cast<DataType>(type)) : format("type %u", type);
    text += " ";
    text += op < kReduceOps ? name_of(static_cast<ReduceOp>(op)) : format("operation %u", op);
    text += number != 0 ? format(" shunted as %u", number) : " forwarded";
    if (call != calls) text += ", ";
  }
  return text;
}

}  // namespace shunt
