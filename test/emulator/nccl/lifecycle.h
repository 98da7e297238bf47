// Making and ending communicators; shared by the API functions of all releases.
#pragma once

#include <nccl.h>

namespace emu_nccl {

// `config` may be null. At most kMaxRanks ranks.
ncclResult_t make_from_id(const char* name, ncclComm_t* newcomm, int ranks, const ncclUniqueId& id,
                          int rank, const ncclConfig_t* config);
// A split, a shrink if `excluded` is not null, or a growth if `grown_ranks` is not 0.
struct ChildSpec {
  const char* name;
  int color = 0;
  int key = 0;
  const int* excluded = nullptr;
  int excluded_count = 0;
  bool abort_parent = false;
  int grown_ranks = 0;
  const ncclUniqueId* id = nullptr;  // of what is grown; one rank has it
};
ncclResult_t make_child(ncclComm_t parent, ncclComm_t* newcomm, const ncclConfig_t* config,
                        const ChildSpec& spec);
ncclResult_t make_all(ncclComm_t* comms, int ndev, const int* devlist);

ncclResult_t finalize(ncclComm_t comm);
ncclResult_t destroy(ncclComm_t comm);
ncclResult_t abort(ncclComm_t comm);
ncclResult_t revoke(ncclComm_t comm, int flags);
// Both wait for the device and for all ranks. Nothing but operations notices.
ncclResult_t suspend(ncclComm_t comm, bool now);

}  // namespace emu_nccl
