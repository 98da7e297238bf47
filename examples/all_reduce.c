// Two processes, one GPU each: an all-reduce captured into a CUDA graph and replayed.
//
//   cc all_reduce.c -o all_reduce -I$CUDA_HOME/include -lcuda -lnccl     (or: nvcc all_reduce.c ...)
//   LD_PRELOAD=/path/to/libnccl-shunt.so SHUNT_STATS=1 ./all_reduce
//
// Nothing here knows about the library: ncclAllReduce is an ordinary call of an ordinary program.
#include <cuda.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 2
#define COUNT 5120  // one token of a model with this hidden size, bf16 in real life
#define REPLAYS 100

#define CU(call)                                                            \
  do {                                                                      \
    CUresult result = (call);                                               \
    if (result != CUDA_SUCCESS) {                                           \
      fprintf(stderr, "%s: CUDA error %d\n", #call, (int)result);           \
      exit(1);                                                              \
    }                                                                       \
  } while (0)
#define NCCL(call)                                                          \
  do {                                                                      \
    ncclResult_t result = (call);                                           \
    if (result != ncclSuccess) {                                            \
      fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(result));       \
      exit(1);                                                              \
    }                                                                       \
  } while (0)

static int run(int rank, ncclUniqueId id) {
  CUdevice device;
  CUcontext context;
  CUstream stream;
  CU(cuInit(0));
  CU(cuDeviceGet(&device, rank));
  CU(cuDevicePrimaryCtxRetain(&context, device));
  CU(cuCtxSetCurrent(context));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, RANKS, id, rank));

  float values[COUNT];
  CUdeviceptr send, recv;
  CU(cuMemAlloc(&send, sizeof values));
  CU(cuMemAlloc(&recv, sizeof values));

  CUgraph graph;
  CUgraphExec executable;
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  NCCL(ncclAllReduce((const void*)send, (void*)recv, COUNT, ncclFloat32, ncclSum, comm, stream));
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphInstantiate(&executable, graph, 0));

  int wrong = 0;
  for (int replay = 0; replay < REPLAYS; ++replay) {
    for (int i = 0; i < COUNT; ++i) values[i] = (float)(i + replay) * (float)(rank + 1);
    CU(cuMemcpyHtoDAsync(send, values, sizeof values, stream));
    CU(cuGraphLaunch(executable, stream));
    CU(cuMemcpyDtoHAsync(values, recv, sizeof values, stream));
    CU(cuStreamSynchronize(stream));
    for (int i = 0; i < COUNT; ++i) wrong += values[i] != (float)(i + replay) * 3;  // ranks 1 + 2
  }
  printf("rank %d: %d replays, %d wrong values\n", rank, REPLAYS, wrong);

  CU(cuGraphExecDestroy(executable));
  CU(cuGraphDestroy(graph));
  NCCL(ncclCommDestroy(comm));
  return wrong != 0;
}

int main(void) {
  int pipes[2];  // carries the id from rank 0 to rank 1
  if (pipe(pipes) != 0) return 1;
  const pid_t child = fork();  // before any CUDA call: a forked CUDA context does not work
  ncclUniqueId id;
  if (child == 0) {
    if (read(pipes[0], &id, sizeof id) != (ssize_t)sizeof id) return 1;
    return run(1, id);
  }
  NCCL(ncclGetUniqueId(&id));
  if (write(pipes[1], &id, sizeof id) != (ssize_t)sizeof id) return 1;
  const int mine = run(0, id);
  int status = 0;
  waitpid(child, &status, 0);
  return mine || status != 0;
}
