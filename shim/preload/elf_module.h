// Loaded files as the dynamic linker maps them, read without its lookup functions: those take its
// locks (not allowed while iterating), leave messages in dlerror and answer for a whole scope, not
// for one file.
#pragma once

#include <link.h>

namespace shunt::preload {

// A loaded file. Valid while it stays loaded.
struct Module {
  const char* path = nullptr;  // "" for the program itself
  ElfW(Addr) base = 0;
  const ElfW(Dyn) * dynamic = nullptr;

  explicit operator bool() const { return dynamic != nullptr; }
  bool is_program() const { return path != nullptr && path[0] == '\0'; }
  bool operator==(const Module& other) const { return dynamic == other.dynamic; }
};

// The file that contains `address`, or none.
Module module_of(const void* address);

// What `module` itself defines and exports under `name`, or nullptr.
void* exported(const Module& module, const char* name);

// Whether `module` exports `name` and also calls it by way of the dynamic linker, so that a
// preloaded file can step in between.
bool calls_own(const Module& module, const char* name);

// Calls visit(module) for every loaded file in load order, until it says true. No dl call inside.
template <typename Visit>
void each_module(Visit visit) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) -> int {
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
          const auto* dynamic =
              reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
          Module module{info->dlpi_name != nullptr ? info->dlpi_name : "", info->dlpi_addr,
                        dynamic};
          return (*static_cast<Visit*>(data))(module, *info);
        }
        return 0;
      },
      &visit);
}

}  // namespace shunt::preload
