#include "shim/preload/call_sites.h"

#include <nccl.h>

#include "shim/preload/hook_names.h"
#include "shim/preload/nccl_library.h"
#include "shim/preload/report.h"

namespace shunt::preload {
namespace {

constexpr unsigned kProbes = 16;

Site& site_at(const void* caller, unsigned probe) {
  return shunt_sites[(reinterpret_cast<uintptr_t>(caller) + probe) & kSiteMask];
}

HookTable known(const void* caller) {
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Site& site = site_at(caller, probe);
    if (site.caller.load(std::memory_order_acquire) == caller) {
      return site.functions.load(std::memory_order_relaxed);
    }
  }
  return nullptr;
}

void remember(const void* caller, HookTable functions) {
  for (unsigned probe = 0; probe < kProbes; ++probe) {
    Site& site = site_at(caller, probe);
    HookTable free = nullptr;
    if (site.functions.compare_exchange_strong(free, functions, std::memory_order_acq_rel)) {
      site.caller.store(caller, std::memory_order_release);
      return;
    }
  }  // full here: such a call finds its library anew each time
}

ncclResult_t no_such_function() { return ncclInvalidUsage; }

}  // namespace
}  // namespace shunt::preload

constinit shunt::preload::Site shunt_sites[shunt::preload::kSiteMask + 1];

void* shunt_miss(const void* address, long hook) {
  using namespace shunt::preload;
  shunt::HookTable functions = known(address);
  if (functions == nullptr) {
    const Module caller = module_of(address);
    const bool nested = is_engine(caller);
    if (nested) functions = functions_inside_engine(address);
    if (functions == nullptr) {
      const Module nccl = nccl_for(caller);
      if (nccl) functions = nested ? real_functions(nccl) : functions_for(nccl, caller);
    }
    if (functions != nullptr) {
      remember(address, functions);
    } else if (void* other = behind_us(caller, hook_name(hook))) {
      return other;  // looked up for each call: rare, and an NCCL may still be loaded later
    }
  }
  if (functions != nullptr && functions[hook] != nullptr) return functions[hook];
  report(hook_name(hook), functions != nullptr ? " is not in the NCCL of its caller"
                                               : " was called, and no NCCL library is loaded");
  return reinterpret_cast<void*>(&no_such_function);
}
