// An NCCL that does nothing but trace: the hooked names as weak aliases of pncclX, as in NCCL, and
// calls of its own public names through the PLT. Built several times:
//   NULL_NCCL_NAME          how it signs its traces
//   NULL_NCCL_2_18          without what came after 2.18
//   NULL_NCCL_NO_PROFILING  ncclX only: a replacement such as MSCCL++'s
//   NULL_NCCL_CALLER        the user's code is in the same file: NCCL linked statically
#if defined(NULL_NCCL_2_18)
#define HOOKS_VERSION 21801
#else
#define HOOKS_VERSION 99999
#endif
#include "test/preload/hooks_of_version.h"
#include "test/preload/trace.h"

#if defined(NULL_NCCL_NO_PROFILING)
#define REAL_NAME(name) name
#define ALIAS(name)
#else
#define REAL_NAME(name) "p" name
#define ALIAS(name)                              \
  extern "C" [[gnu::weak, gnu::alias("p" #name), \
               gnu::visibility("default")]] ncclResult_t alias_##name() asm(#name);
#endif
#define EXPORTED extern "C" [[gnu::visibility("default")]]

// What NCCL calls of its own, by the public names.
extern "C" ncclResult_t own_async_error() asm("ncclCommGetAsyncError");
extern "C" ncclResult_t own_broadcast() asm("ncclBroadcast");
extern "C" ncclResult_t own_group_start() asm("ncclGroupStart");

namespace {

[[gnu::always_inline]] inline ncclResult_t called(const char* name, shunt::Hook hook) {
  if (!traced()) return ncclSuccess;
  trace("nccl " NULL_NCCL_NAME, name);
  volatile ncclResult_t inner = ncclSuccess;
  if (hook == shunt::k_ncclCommFinalize) inner = own_async_error();
  if (hook == shunt::k_ncclRecv) inner = own_group_start();  // 2.18 does
  if (hook == shunt::k_ncclBcast) return own_broadcast();    // by a tail call, like NCCL
  return inner;
}

}  // namespace

// All but two take no notice of their arguments; the two have one on the stack and one of 128
// bytes.
#define GENERIC(name)                                        \
  EXPORTED ncclResult_t null_##name() asm(REAL_NAME(#name)); \
  ncclResult_t null_##name() { return called(#name, shunt::k_##name); }
#define SKIP(name)
#define TYPED_ncclAllReduce 0, SKIP
#define TYPED_ncclCommInitRank 0, SKIP
#define CHOICE(unused, choice, ...) choice
#define CHOOSE(...) CHOICE(__VA_ARGS__)
#define DEFINE(name) CHOOSE(TYPED_##name, GENERIC, )(name)
SHUNT_HOOKS(DEFINE)

EXPORTED ncclResult_t null_all_reduce(const void* send, void* receive, size_t count,
                                      ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                      cudaStream_t stream) asm(REAL_NAME("ncclAllReduce"));
ncclResult_t null_all_reduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  if (!traced()) return ncclSuccess;
  char arguments[160];
  snprintf(arguments, sizeof arguments, "(%p,%p,%zu,%d,%d,%p,%p)", send, receive, count, type, op,
           static_cast<void*>(comm), static_cast<void*>(stream));
  trace("nccl " NULL_NCCL_NAME, "ncclAllReduce", arguments);
  return ncclSuccess;
}

EXPORTED ncclResult_t null_init_rank(ncclComm_t* comm, int ranks, ncclUniqueId id,
                                     int rank) asm(REAL_NAME("ncclCommInitRank"));
ncclResult_t null_init_rank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  unsigned sum = 0;
  for (unsigned i = 0; i < sizeof id; ++i)
    sum += (i + 1) * static_cast<unsigned char>(id.internal[i]);
  char arguments[64];
  snprintf(arguments, sizeof arguments, "(%d,%u,%d)", ranks, sum, rank);
  trace("nccl " NULL_NCCL_NAME, "ncclCommInitRank", arguments);
  *comm = reinterpret_cast<ncclComm_t>(0xc0);
  return ncclSuccess;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wattribute-alias"  // the aliases have no types on purpose
#endif
SHUNT_HOOKS(ALIAS)

EXPORTED int null_nccl_version() { return NCCL_VERSION_CODE; }  // never hooked

#if defined(NULL_NCCL_CALLER)
#include "test/preload/user_calls.h"
EXPORTED int use_nccl() { return user_calls(); }
#endif
