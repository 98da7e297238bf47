// One line for those who preload us into a program that has NCCL linked into it: its calls reach
// NCCL directly, and nobody would notice. Said at exit, of programs that used CUDA; silent for all
// others.
#include <string.h>

#include "shim/preload/elf_module.h"
#include "shim/preload/nccl_library.h"
#include "shim/preload/report.h"

namespace shunt::preload {
namespace {

bool is_cuda(const Module& module) {
  const char* slash = strrchr(module.path, '/');
  return strncmp(slash != nullptr ? slash + 1 : module.path, "libcuda.so", 10) == 0;
}

// NCCL's own settings are in its read-only data, whether its symbols are visible or not.
bool has_nccl_inside(const Module& program, const dl_phdr_info& info) {
  constexpr char kTrace[] = "NCCL_P2P_DISABLE";
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_R) == 0 || segment.p_filesz == 0)
      continue;
    const void* start = reinterpret_cast<const void*>(program.base + segment.p_vaddr);
    if (memmem(start, segment.p_filesz, kTrace, sizeof kTrace) != nullptr) return true;
  }
  return false;
}

[[gnu::destructor]] void notice() {
  if (nccl_was_used()) return;
  bool cuda = false;
  bool nccl_elsewhere = false;
  each_module([&](const Module& module, const dl_phdr_info&) {
    cuda = cuda || is_cuda(module);
    nccl_elsewhere = nccl_elsewhere || (!module.is_program() && is_nccl(module));
    return nccl_elsewhere;
  });
  if (!cuda || nccl_elsewhere) return;
  bool inside = false;
  each_module([&](const Module& module, const dl_phdr_info& info) {
    inside = has_nccl_inside(module, info);
    return true;  // the program comes first
  });
  if (inside) report("NCCL is linked into this program: none of its calls could be intercepted");
}

}  // namespace
}  // namespace shunt::preload
