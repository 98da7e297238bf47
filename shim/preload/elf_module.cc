#include "shim/preload/elf_module.h"

#include <string.h>

namespace shunt::preload {
namespace {

struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
  const ElfW(Rela) * relocations[2] = {};
  size_t relocation_bytes[2] = {};
};

Tables tables_of(const Module& module) {
  Tables tables;
  // glibc rewrites these entries to addresses when it loads a file, except in files that it may not
  // write (the kernel's vdso): there they are still offsets.
  auto at = [&](ElfW(Addr) value) { return value < module.base ? value + module.base : value; };
  for (const ElfW(Dyn)* entry = module.dynamic; entry->d_tag != DT_NULL; ++entry) {
    ElfW(Addr) address = at(entry->d_un.d_ptr);
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
        break;
      case DT_STRTAB:
        tables.strings = reinterpret_cast<const char*>(address);
        break;
      case DT_GNU_HASH:
        tables.gnu_hash = reinterpret_cast<const uint32_t*>(address);
        break;
      case DT_HASH:
        tables.sysv_hash = reinterpret_cast<const uint32_t*>(address);
        break;
      case DT_RELA:
        tables.relocations[0] = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_JMPREL:
        tables.relocations[1] = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_RELASZ:
        tables.relocation_bytes[0] = entry->d_un.d_val;
        break;
      case DT_PLTRELSZ:
        tables.relocation_bytes[1] = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return tables;
}

bool defines(const Tables& tables, uint32_t index, const char* name) {
  const ElfW(Sym)& symbol = tables.symbols[index];
  return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
         strcmp(tables.strings + symbol.st_name, name) == 0;
}

// https://flapenguin.me/elf-dt-gnu-hash and glibc's elf/dl-lookup.c; the Bloom filter is left out.
uint32_t find_gnu(const Tables& tables, const char* name) {
  uint32_t hash = 5381;
  for (const char* c = name; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  const uint32_t buckets = tables.gnu_hash[0];
  const uint32_t first = tables.gnu_hash[1];
  const uint32_t bloom_words = tables.gnu_hash[2];
  if (buckets == 0) return 0;
  const uint32_t* bucket = tables.gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* chain = bucket + buckets;
  uint32_t index = bucket[hash % buckets];
  if (index < first) return 0;
  for (;; ++index) {
    const uint32_t entry = chain[index - first];
    if ((entry | 1) == (hash | 1) && defines(tables, index, name)) return index;
    if ((entry & 1) != 0) return 0;
  }
}

uint32_t find_sysv(const Tables& tables, const char* name) {
  uint32_t hash = 0;
  for (const char* c = name; *c != '\0'; ++c) {
    hash = (hash << 4) + static_cast<unsigned char>(*c);
    hash = (hash ^ ((hash & 0xf0000000) >> 24)) & 0x0fffffff;
  }
  const uint32_t buckets = tables.sysv_hash[0];
  if (buckets == 0) return 0;
  uint32_t index = tables.sysv_hash[2 + hash % buckets];
  while (index != 0 && !defines(tables, index, name)) index = tables.sysv_hash[2 + buckets + index];
  return index;
}

// The index of what the file defines under `name`, or 0.
uint32_t find(const Tables& tables, const char* name) {
  if (tables.symbols == nullptr || tables.strings == nullptr) return 0;
  if (tables.gnu_hash != nullptr) return find_gnu(tables, name);
  return tables.sysv_hash != nullptr ? find_sysv(tables, name) : 0;
}

}  // namespace

Module module_of(const void* address) {
  Module found;
  const auto wanted = reinterpret_cast<ElfW(Addr)>(address);
  each_module([&](const Module& module, const dl_phdr_info& info) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      if (segment.p_type != PT_LOAD) continue;
      if (wanted - (module.base + segment.p_vaddr) >= segment.p_memsz) continue;
      found = module;
      return true;
    }
    return false;
  });
  return found;
}

void* exported(const Module& module, const char* name) {
  const Tables tables = tables_of(module);
  const uint32_t index = find(tables, name);
  return index == 0 ? nullptr
                    : reinterpret_cast<void*>(module.base + tables.symbols[index].st_value);
}

bool calls_own(const Module& module, const char* name) {
  const Tables tables = tables_of(module);
  const uint32_t index = find(tables, name);
  if (index == 0) return false;
  for (int part = 0; part < 2; ++part) {
    const ElfW(Rela)* relocation = tables.relocations[part];
    if (relocation == nullptr) continue;
    const ElfW(Rela)* end = relocation + tables.relocation_bytes[part] / sizeof(*relocation);
    for (; relocation != end; ++relocation) {
      if (ELF64_R_SYM(relocation->r_info) == index) return true;
    }
  }
  return false;
}

}  // namespace shunt::preload
