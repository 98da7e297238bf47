// Entry point: cuGetProcAddress.
#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "report.h"

using namespace emu;

namespace {

// This library, however it was loaded.
void* self() {
  static void* handle = [] {
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&self), &info) == 0) return static_cast<void*>(nullptr);
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return handle;
}

// The newest form of `name` that a program of this CUDA version was compiled against.
void* newest(const std::string& name, int version) {
  if (version >= 12030) {
    if (void* found = dlsym(self(), (name + "_v3").c_str())) return found;
  }
  if (void* found = dlsym(self(), (name + "_v2").c_str())) return found;
  return dlsym(self(), name.c_str());
}

CUresult look_up(const char* symbol, void** function, int version,
                 CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = *symbol == '\0' ? nullptr : newest(symbol, version);
  if (status != nullptr) {
    *status =
        *function == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t /*flags*/,
                             CUdriverProcAddressQueryResult* status) {
  return call_in_any_state("cuGetProcAddress_v2",
                           [&] { return look_up(symbol, function, version, status); });
}

CUresult emu_get_proc_address_v1(const char*, void**, int, cuuint64_t) __asm__("cuGetProcAddress");
CUresult emu_get_proc_address_v1(const char* symbol, void** function, int version,
                                 cuuint64_t /*flags*/) {
  return call_in_any_state("cuGetProcAddress",
                           [&] { return look_up(symbol, function, version, nullptr); });
}

}  // extern "C"
