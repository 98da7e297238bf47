// How a function of the API is exported: pncclX is the function, ncclX a weak alias of it, so that
// a preloaded library can take the name over.
#pragma once

#include <nccl.h>

#define EMU_NCCL_API(result, name, ...)                                          \
  extern "C" __attribute__((visibility("default"))) result p##name(__VA_ARGS__); \
  extern "C" __attribute__((weak, alias("p" #name), visibility("default")))      \
  result name(__VA_ARGS__);                                                      \
  result p##name(__VA_ARGS__)
