// The entry points of the fat binary, looked up by kernel_name().
#include "kernels/all_reduce.cuh"
#include "kernels/all_reduce_table.h"
#include "kernels/hold.cuh"

#define SHUNT_ENTRY(type, type_name, protocol, protocol_name, variant, variant_name, batch)               \
  extern "C" __global__ void __launch_bounds__(shunt::kMaxBlockThreads, 1) \
      shunt_all_reduce_##type_name##_##protocol_name##_##variant_name##_##batch(                      \
          const __grid_constant__ shunt::ParamsOf<shunt::Variant::variant> params) {                              \
    shunt::all_reduce<shunt::DataType::type, shunt::Protocol::protocol, shunt::Variant::variant, batch>(  \
        params);                                                                                  \
  }

SHUNT_KERNELS(SHUNT_ENTRY)

extern "C" __global__ void shunt_hold(const __grid_constant__ shunt::HoldParams params) {
  shunt::hold(params);
}
