// The kernels compiled for the host: what the emulated driver and the protocol simulation run.
#include <cstring>

#include "kernels/all_reduce.cuh"
#include "kernels/all_reduce_table.h"
#include "kernels/hold.cuh"
#include "kernels/host_runtime.h"

namespace shunt::host {
namespace {

template <DataType kType, Protocol kProtocol, Variant kVariant, uint32_t kPeerBatch>
void body(const void* params) {
  all_reduce<kType, kProtocol, kVariant, kPeerBatch>(*static_cast<const ParamsOf<kVariant>*>(params));
}

#define SHUNT_ROW(type, type_name, protocol, protocol_name, variant, variant_name, batch)  \
  {"shunt_all_reduce_" #type_name "_" #protocol_name "_" #variant_name "_" #batch,      \
   body<DataType::type, Protocol::protocol, Variant::variant, batch>, sizeof(ParamsOf<Variant::variant>)},

void hold_body(const void* params) { hold(*static_cast<const HoldParams*>(params)); }

constexpr HostKernel kKernels[] = {SHUNT_KERNELS(SHUNT_ROW) {kHoldKernel, hold_body, sizeof(HoldParams)}};

}  // namespace

const HostKernel* find_kernel(const char* name) {
  for (const HostKernel& kernel : kKernels) {
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace shunt::host
