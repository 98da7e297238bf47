// The exported names: one entry a line of SHUNT_HOOKS, each of two instructions. They take no
// notice of types, so nothing here can disagree with the nccl.h that a program was built with.
#include "shim/hooks.h"

// The assembler counts the lines of the list, as enum Hook does.
#if defined(__x86_64__)
#define SHUNT_ENTRY_CODE "  movl $(8 * shunt_index), %r11d\n  jmp shunt_hook_entry\n"
#define SHUNT_ENTRY_START "  .p2align 4\n"
#elif defined(__aarch64__)
#define SHUNT_ENTRY_CODE "  hint #34\n  mov x17, #(8 * shunt_index)\n  b shunt_hook_entry\n"
#define SHUNT_ENTRY_START "  .p2align 2\n"
#endif
#if defined(__CET__) && (__CET__ & 1)
#define SHUNT_ENTRY_LANDING "  endbr64\n"
#else
#define SHUNT_ENTRY_LANDING ""
#endif

#define SHUNT_ENTRY(name)                                                      \
  SHUNT_ENTRY_START "  .globl " #name "\n  .type " #name ", %function\n" #name \
                    ":\n"                                                      \
                    "  .cfi_startproc\n" SHUNT_ENTRY_LANDING SHUNT_ENTRY_CODE  \
                    "  .cfi_endproc\n  .size " #name ", . - " #name            \
                    "\n"                                                       \
                    "  .set shunt_index, shunt_index + 1\n"

asm(".text\n.hidden shunt_hook_entry\n.set shunt_index, 0\n" SHUNT_HOOKS(SHUNT_ENTRY));
