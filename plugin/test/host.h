// A program that loads a tuner plugin and calls it as NCCL does.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "plugin/abi.h"

namespace shunt::tuner {

using Costs = std::array<std::array<float, 3>, 7>;

// As NCCL makes it on a PCIe machine: LL and Simple of ring and tree, the rest ruled out.
Costs pcie_costs();

// What NCCL would run, from the answers of one call.
struct Answer {
  int algorithm = -1;  // of the cheapest entry; version 2: as named, -1 if not
  int protocol = -1;
  int channels = 0;
  Costs costs = pcie_costs();  // as the plugin left them
  bool untouched() const { return costs == pcie_costs() && channels == 0; }
};

// One communicator of one interface version. Throws std::runtime_error with the reason if the file
// does not export the version, or if a function fails.
class Host {
 public:
  Host(const std::string& file, int version, size_t ranks = 2, size_t nodes = 1);
  Host(const Host&) = delete;
  ~Host();

  Answer ask(int function, size_t bytes, Costs costs = pcie_costs(), bool nvls = false);
  const void* context() const { return context_; }

  // Every line that plugins have logged in this process, newest last.
  static std::vector<std::string>& log();

 private:
  void init(size_t ranks, size_t nodes);

  int version_;
  void* library_;
  const void* symbol_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace shunt::tuner
