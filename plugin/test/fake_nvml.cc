// libnvidia-ml.so.1 of a machine with TEST_GPUS GPUs (2) named TEST_GPU_NAME ("Test GPU"), joined
// by PCIe with peer access.
#include <cstdio>
#include <cstdlib>

namespace {

using Device = void*;

unsigned gpus() {
  const char* const text = std::getenv("TEST_GPUS");
  return text == nullptr ? 2 : static_cast<unsigned>(std::atoi(text));
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return std::getenv("TEST_NVML_FAILS") == nullptr ? 0 : 9; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "580.1");
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = gpus();
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  static char places[64];
  if (index >= gpus()) return 2;
  *device = &places[index];
  return 0;
}
int nvmlDeviceGetName(Device, char* text, unsigned length) {
  const char* const name = std::getenv("TEST_GPU_NAME");
  std::snprintf(text, length, "%s", name == nullptr ? "Test GPU" : name);
  return 0;
}
int nvmlDeviceGetP2PStatus(Device, Device, int capability, int* status) {
  *status = capability <= 1 ? 0 : 5;  // read and write, no NVLink
  return 0;
}
int nvmlDeviceGetTopologyCommonAncestor(Device, Device, int* level) {
  *level = 30;  // a host bridge
  return 0;
}
int nvmlDeviceGetNvLinkState(Device, unsigned, int*) { return 3; }

}  // extern "C"
