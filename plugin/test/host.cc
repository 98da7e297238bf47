#include "plugin/test/host.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "plugin/cost_table.h"

// The plugin asks the file that the logger lies in, which is this program.
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}

namespace shunt::tuner {
namespace {

void logger(int level, unsigned long subsystems, const char*, int, const char* format, ...) {
  char text[2000];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  Host::log().push_back((level == abi::kLogWarn ? "W " : "I ") +
                        std::string(subsystems == 0x41 ? "" : "wrong subsystem ") + text);
}

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

}  // namespace

Costs pcie_costs() {
  Costs costs;
  for (auto& row : costs) row.fill(abi::kIgnore);
  costs[abi::kTree] = {30, abi::kIgnore, 40};
  costs[abi::kRing] = {20, abi::kIgnore, 10};
  return costs;
}

std::vector<std::string>& Host::log() {
  static std::vector<std::string> lines;
  return lines;
}

Host::Host(const std::string& file, int version, size_t ranks, size_t nodes) : version_(version) {
  library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) throw std::runtime_error(dlerror());
  symbol_ = dlsym(library_, ("ncclTunerPlugin_v" + std::to_string(version)).c_str());
  try {
    require(symbol_ != nullptr, "this version is not exported");
    init(ranks, nodes);
  } catch (...) {
    dlclose(library_);
    throw;
  }
}

void Host::init(size_t ranks, size_t nodes) {
  abi::NvlDomainsV5 domains{1, static_cast<int>(ranks), static_cast<int>(ranks)};
  abi::ConstantsV5 constants;
  std::memset(&constants, 0x5a, sizeof constants);
  const abi::ConstantsV5 before = constants;
  abi::Result code = -1;
  const auto with = [&]<typename Tuner>(const Tuner* tuner) {
    require(std::string("nccl-shunt") == tuner->name || std::string("broken") == tuner->name,
            "name");
    if constexpr (requires { tuner->finalize; }) {
      code = tuner->init(&context_, 77, ranks, nodes, logger, &domains, &constants);
    } else {
      code = tuner->init(ranks, nodes, logger, &context_);
    }
  };
  switch (version_) {
    case 2:
      with(static_cast<const abi::TunerV2*>(symbol_));
      break;
    case 3:
      with(static_cast<const abi::TunerV3*>(symbol_));
      break;
    case 4:
      with(static_cast<const abi::TunerV4*>(symbol_));
      break;
    case 5:
      with(static_cast<const abi::TunerV5*>(symbol_));
      break;
    default:
      with(static_cast<const abi::TunerV6*>(symbol_));
      require(static_cast<const abi::TunerV6*>(symbol_)->get_chunk_size == nullptr, "chunk sizes");
  }
  require(code == abi::kSuccess, "init failed");
  require(std::memcmp(&before, &constants, sizeof constants) == 0, "init changed NCCL's constants");
}

Answer Host::ask(int function, size_t bytes, Costs costs, bool nvls) {
  Answer answer;
  float* const table = &costs[0][0];
  float** const declared = reinterpret_cast<float**>(table);
  abi::Result code = -1;
  if (version_ == 2) {
    code = static_cast<const abi::TunerV2*>(symbol_)->get_coll_info(
        context_, function, bytes, 0, nvls, 1, &answer.algorithm, &answer.protocol,
        &answer.channels);
  } else if (version_ == 3) {
    code = static_cast<const abi::TunerV3*>(symbol_)->get_coll_info(
        context_, function, bytes, 1, declared, 7, 3, &answer.channels);
  } else {  // the function of 4, 5 and 6 is the same, at the same place
    code = static_cast<const abi::TunerV4*>(symbol_)->get_coll_info(
        context_, function, bytes, 1, declared, 7, 3, 1, &answer.channels);
  }
  require(code == abi::kSuccess, "getCollInfo failed");
  answer.costs = costs;
  if (version_ == 2) return answer;
  const Wish taken = CostTable(table, 7, 3).cheapest();
  answer.algorithm = taken.algorithm;
  answer.protocol = taken.protocol;
  return answer;
}

Host::~Host() {
  // destroy and finalize are at one place in all versions
  static_cast<const abi::TunerV5*>(symbol_)->finalize(context_);
  dlclose(library_);
}

}  // namespace shunt::tuner
