// The two places where no compiler may stand between the caller and the function that it gets. Both
// leave by a jump: the next function finds every argument, the stack and the return address as the
// caller left them. (dlsym's RTLD_NEXT is relative to its return address; a compiler's tail call is gone
// at -O0 and never happens for ncclUniqueId, 128 bytes by value.)
//
//   dlsym             under both versions that glibc gives it: a tool in front of us that looks for the
//                     next one with dlvsym finds only a versioned one.
//                     shunt_filter_dlsym(handle, name, return address) says {address, done}:
//                     done: return the address to the caller; else: jump to it, the next dlsym
//   shunt_hook_entry  every exported ncclX comes here with 8 * its index in SHUNT_HOOKS; a hit in the
//                     table of call sites (call_sites.h) costs a few instructions, a miss a call of
//                     shunt_miss(return address, index), which says where to jump
#if defined(__CET__)
#include <cet.h>
#else
#define _CET_ENDBR
#endif

        .text
        .hidden shunt_filter_dlsym
        .hidden shunt_miss
        .hidden shunt_sites

#if defined(__x86_64__)

        .globl  shunt_dlsym_oldest
        .globl  shunt_dlsym_newest
        .symver shunt_dlsym_oldest, dlsym@GLIBC_2.2.5
        .symver shunt_dlsym_newest, dlsym@@GLIBC_2.34
        .type   shunt_dlsym_oldest, @function
        .type   shunt_dlsym_newest, @function
        .p2align 4
shunt_dlsym_oldest:
shunt_dlsym_newest:
        .cfi_startproc
        _CET_ENDBR
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp                // the entry is 8 off a multiple of 16: three words make it even
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), %rdx
        call    shunt_filter_dlsym
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rdx, %rdx
        jnz     1f
        jmp     *%rax
1:      ret
        .cfi_endproc
        .size   shunt_dlsym_oldest, .-shunt_dlsym_oldest
        .size   shunt_dlsym_newest, .-shunt_dlsym_newest

        .globl  shunt_hook_entry
        .hidden shunt_hook_entry
        .type   shunt_hook_entry, @function
        .p2align 5
shunt_hook_entry:                       // r11: 8 * index; rax, r10: free; all else belongs to the call
        .cfi_startproc
        movl    (%rsp), %eax
        andl    $1023, %eax             // kSiteMask
        shll    $4, %eax
        leaq    shunt_sites(%rip), %r10
        addq    %rax, %r10
        movq    (%rsp), %rax
        cmpq    %rax, (%r10)
        jne     1f
        movq    8(%r10), %r10
        movq    (%r10,%r11), %r10
        testq   %r10, %r10
        jz      1f
        jmp     *%r10
1:      pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        pushq   %rcx
        .cfi_adjust_cfa_offset 8
        pushq   %r8
        .cfi_adjust_cfa_offset 8
        pushq   %r9
        .cfi_adjust_cfa_offset 8
        subq    $136, %rsp              // eight vector registers and the word that aligns them
        .cfi_adjust_cfa_offset 136
        movaps  %xmm0, (%rsp)
        movaps  %xmm1, 16(%rsp)
        movaps  %xmm2, 32(%rsp)
        movaps  %xmm3, 48(%rsp)
        movaps  %xmm4, 64(%rsp)
        movaps  %xmm5, 80(%rsp)
        movaps  %xmm6, 96(%rsp)
        movaps  %xmm7, 112(%rsp)
        movq    %rax, %rdi
        movq    %r11, %rsi
        shrq    $3, %rsi
        call    shunt_miss
        movaps  (%rsp), %xmm0
        movaps  16(%rsp), %xmm1
        movaps  32(%rsp), %xmm2
        movaps  48(%rsp), %xmm3
        movaps  64(%rsp), %xmm4
        movaps  80(%rsp), %xmm5
        movaps  96(%rsp), %xmm6
        movaps  112(%rsp), %xmm7
        addq    $136, %rsp
        .cfi_adjust_cfa_offset -136
        popq    %r9
        .cfi_adjust_cfa_offset -8
        popq    %r8
        .cfi_adjust_cfa_offset -8
        popq    %rcx
        .cfi_adjust_cfa_offset -8
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        jmp     *%rax
        .cfi_endproc
        .size   shunt_hook_entry, .-shunt_hook_entry

#elif defined(__aarch64__)

        .globl  shunt_dlsym_oldest
        .globl  shunt_dlsym_newest
        .symver shunt_dlsym_oldest, dlsym@GLIBC_2.17
        .symver shunt_dlsym_newest, dlsym@@GLIBC_2.34
        .type   shunt_dlsym_oldest, %function
        .type   shunt_dlsym_newest, %function
        .p2align 4
shunt_dlsym_oldest:
shunt_dlsym_newest:
        .cfi_startproc
        hint    #34                     // bti c
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        mov     x2, x30
        bl      shunt_filter_dlsym
        mov     x16, x0
        mov     x17, x1
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        cbnz    x17, 1f
        br      x16                     // x16 and x17 may jump to a "bti c"
1:      mov     x0, x16
        ret
        .cfi_endproc
        .size   shunt_dlsym_oldest, .-shunt_dlsym_oldest
        .size   shunt_dlsym_newest, .-shunt_dlsym_newest

        .globl  shunt_hook_entry
        .hidden shunt_hook_entry
        .type   shunt_hook_entry, %function
        .p2align 5
shunt_hook_entry:                       // x17: 8 * index; x9 to x16: free; all else belongs to the call
        .cfi_startproc
        adrp    x9, shunt_sites
        add     x9, x9, :lo12:shunt_sites
        and     x10, x30, #1023         // kSiteMask
        add     x9, x9, x10, lsl #4
        ldar    x10, [x9]               // pairs with the release of the key: the table is there too
        cmp     x10, x30
        b.ne    1f
        ldr     x10, [x9, #8]
        ldr     x16, [x10, x17]
        cbz     x16, 1f
        br      x16
1:      stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     x0, x30
        lsr     x1, x17, #3
        bl      shunt_miss
        mov     x16, x0
        ldp     q6, q7, [sp, #192]
        ldp     q4, q5, [sp, #160]
        ldp     q2, q3, [sp, #128]
        ldp     q0, q1, [sp, #96]
        ldr     x8, [sp, #80]
        ldp     x6, x7, [sp, #64]
        ldp     x4, x5, [sp, #48]
        ldp     x2, x3, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #224
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   shunt_hook_entry, .-shunt_hook_entry

#else
#error "no trampolines for this processor: x86-64 and aarch64 only"
#endif

        .section .note.GNU-stack, "", %progbits
