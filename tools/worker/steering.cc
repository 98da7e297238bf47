#include "tools/worker/steering.h"

#include <mutex>
#include <utility>

#include "plugin/adapter.h"

namespace shunt::tune {
namespace {

// NCCL may ask from a thread of its own.
std::mutex mutex;
tuner::Wish wanted;
bool unsafe_allowed = false;
Asked asked;

uint64_t allowed_entries(const tuner::CostTable& table) {
  uint64_t bits = 0;
  for (int a = 0; a < tuner::abi::kAlgorithms; ++a) {
    for (int p = 0; p < tuner::abi::kProtocols; ++p) {
      if (table.allows(a, p)) bits |= uint64_t{1} << (a * tuner::abi::kProtocols + p);
    }
  }
  return bits;
}

}  // namespace

Asked steer(const tuner::Wish& wish, bool unsafe) {
  const std::lock_guard lock(mutex);
  wanted = wish;
  unsafe_allowed = unsafe;
  return std::exchange(asked, {});
}

}  // namespace shunt::tune

namespace shunt::tuner {

// A context that is not null: older versions of NCCL take a null one for a failure.
void* open_communicator(const CommunicatorFacts&) noexcept { return &tune::wanted; }

Wish ask(void*, const Call&, CostTable& table) noexcept {
  const std::lock_guard lock(tune::mutex);
  tune::asked.times += 1;
  tune::asked.cheapest = table.cheapest();
  tune::asked.allowed = tune::allowed_entries(table);
  if (tune::wanted.empty()) return {};
  if (!may_follow(tune::wanted, table, tune::unsafe_allowed)) {
    tune::asked.ruled_out += 1;
    return {};
  }
  table.prefer(tune::wanted.algorithm, tune::wanted.protocol);
  return tune::wanted;
}

void close_communicator(void*) noexcept {}

}  // namespace shunt::tuner
