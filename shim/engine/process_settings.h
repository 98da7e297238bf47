// The settings of this process, read from its environment.
#pragma once

#include "shim/engine/settings.h"

namespace shunt {

// Parsed, logged about and put into effect once, when first asked for.
const Settings& process_settings();
// NCCL_P2P_DISABLE as it stands: NCCL adds what its configuration files say when it first makes a
// communicator, which is after we are first used.
bool p2p_disabled_now();

}  // namespace shunt
