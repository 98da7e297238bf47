// Compiled once for each copy; see CMakeLists.txt.
#include "test/emulator/nccl/variant.h"

namespace emu_nccl {

const Variant kVariant = {EMU_NCCL_VARIANT_NAME, EMU_NCCL_VARIANT_VERSION,
                          EMU_NCCL_VARIANT_DATATYPES};

}  // namespace emu_nccl
