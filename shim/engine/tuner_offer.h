// The tuner plugin beside the library, for programs that are only preloaded into.
#pragma once

namespace shunt {

// Sets NCCL_TUNER_PLUGIN where there is a profile (plugin/profile_place.h says exactly when). Must
// come before NCCL makes its first communicator, when it reads the variable.
void offer_tuner();

}  // namespace shunt
