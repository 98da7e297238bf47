#include "plugin/profile.h"

#include <iterator>

#include "plugin/abi.h"

namespace shunt::tuner {
namespace {

constexpr const char* kAlgorithmNames[] = {
    "tree", "ring", "collnet-direct", "collnet-chain", "nvls", "nvls-tree", "pat"};
constexpr const char* kProtocolNames[] = {"LL", "LL128", "Simple"};
static_assert(std::size(kAlgorithmNames) == abi::kAlgorithms);
static_assert(std::size(kProtocolNames) == abi::kProtocols);
static_assert(static_cast<int>(Collective::kAllGather) == abi::kAllGather);
static_assert(static_cast<int>(Collective::kReduceScatter) == abi::kReduceScatter);
static_assert(static_cast<int>(Collective::kAllReduce) == abi::kAllReduce);

template <size_t kSize>
const char* name_in(const char* const (&names)[kSize], int index) {
  return index >= 0 && index < static_cast<int>(kSize) ? names[index] : "?";
}

template <size_t kSize>
int index_in(const char* const (&names)[kSize], std::string_view name) {
  for (size_t i = 0; i < kSize; ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kReduceScatter:
      return "reduce-scatter";
    case Collective::kAllReduce:
      return "all-reduce";
  }
  return "?";
}

const char* algorithm_name(int algorithm) { return name_in(kAlgorithmNames, algorithm); }
const char* protocol_name(int protocol) { return name_in(kProtocolNames, protocol); }
int algorithm_of(std::string_view name) { return index_in(kAlgorithmNames, name); }
int protocol_of(std::string_view name) { return index_in(kProtocolNames, name); }

std::string to_text(const Wish& wish) {
  if (wish.empty()) return "default";
  std::string text = algorithm_name(wish.algorithm);
  text += '/';
  text += protocol_name(wish.protocol);
  if (wish.channels > 0) {
    text += '/';
    text += std::to_string(wish.channels);
  }
  return text;
}

const std::vector<Rule>* Profile::rules(int function) const {
  switch (function) {
    case abi::kAllReduce:
      return &all_reduce;
    case abi::kAllGather:
      return &all_gather;
    case abi::kReduceScatter:
      return &reduce_scatter;
    default:
      return nullptr;
  }
}

const std::vector<Rule>& Profile::rules(Collective collective) const {
  return *rules(static_cast<int>(collective));
}

std::vector<Rule>& Profile::rules(Collective collective) {
  return const_cast<std::vector<Rule>&>(static_cast<const Profile*>(this)->rules(collective));
}

}  // namespace shunt::tuner
