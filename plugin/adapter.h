// What the adapters of the interface versions call. tuner.cc implements it for the plugin, and
// tools/worker/steering.cc for `nccl-shunt tune`, which tries one configuration after the other.
#pragma once

#include <cstddef>

#include "plugin/abi.h"
#include "plugin/choice.h"
#include "plugin/cost_table.h"

#define SHUNT_TUNER_EXPORT extern "C" __attribute__((visibility("default")))

namespace shunt::tuner {

inline constexpr char kTunerName[] = "nccl-shunt";

struct CommunicatorFacts {
  size_t ranks;
  size_t nodes;
  abi::Logger log;  // may be null
};

// Called by NCCL while it makes a communicator, perhaps by several threads at once. Null is a valid
// context.
void* open_communicator(const CommunicatorFacts& facts) noexcept;

// For every call. Changes the table as it wants NCCL to choose, and returns that; empty: the table
// is untouched.
Wish ask(void* context, const Call& call, CostTable& table) noexcept;

void close_communicator(void* context) noexcept;

// What versions 3 to 6 have in common. Success always: an error would end the user's call.
inline abi::Result ask_for_table(void* context, int function, size_t bytes, float** costs,
                                 int algorithms, int protocols, int* channels) noexcept {
  CostTable table(reinterpret_cast<float*>(costs), algorithms, protocols);
  const Wish wish = ask(context, {function, bytes}, table);
  if (!wish.empty() && wish.channels > 0 && channels != nullptr) *channels = wish.channels;
  return abi::kSuccess;
}

inline abi::Result close_tuner(void* context) noexcept {
  close_communicator(context);
  return abi::kSuccess;
}

}  // namespace shunt::tuner
