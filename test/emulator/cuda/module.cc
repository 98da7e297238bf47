#include "module.h"

#include <unistd.h>

#include "context.h"
#include "report.h"

namespace emu {

void load(Function& function) {
  if (function.loaded) return;
  trace_note("lazy-load %s", function.kernel->name);
  const Context& context = function.context;
  while (context.kernels > 0 && context.sticky() == CUDA_SUCCESS) usleep(100);
  function.loaded = true;
}

}  // namespace emu
