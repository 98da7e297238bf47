// SHUNT_HOOKS cut to what NCCL HOOKS_VERSION declares; unless defined: the version of nccl.h.
#pragma once

#include "shim/hooks.h"

#ifndef HOOKS_VERSION
#define HOOKS_VERSION NCCL_VERSION_CODE
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 22, 3)
#undef SHUNT_HOOKS_2_22_3
#define SHUNT_HOOKS_2_22_3(X)
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 23, 4)
#undef SHUNT_HOOKS_2_23_4
#define SHUNT_HOOKS_2_23_4(X)
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 27, 3)
#undef SHUNT_HOOKS_2_27_3
#define SHUNT_HOOKS_2_27_3(X)
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 28, 1)
#undef SHUNT_HOOKS_2_28_1
#define SHUNT_HOOKS_2_28_1(X)
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 28, 7)
#undef SHUNT_HOOKS_2_28_7
#define SHUNT_HOOKS_2_28_7(X)
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 29, 2)
#undef SHUNT_HOOKS_2_29_2
#define SHUNT_HOOKS_2_29_2(X)
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 29, 7)
#undef SHUNT_HOOKS_2_29_7
#define SHUNT_HOOKS_2_29_7(X)
#endif
#if HOOKS_VERSION < NCCL_VERSION(2, 31, 2)
#undef SHUNT_HOOKS_2_31_2
#define SHUNT_HOOKS_2_31_2(X)
#endif
