#include "tools/worker/driver.h"

#include <dlfcn.h>

namespace shunt::bench {
namespace {

std::string text_of(CUresult code, const char* call) {
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(code, &name);
  cuGetErrorString(code, &text);
  return std::string(call) + ": " + (text != nullptr ? text : "unknown error") + " (" +
         (name != nullptr ? name : "?") + ", " + std::to_string(static_cast<int>(code)) + ")";
}

CUdevice device_at(uint32_t ordinal) {
  int count = 0;
  SHUNT_DRIVER(cuDeviceGetCount(&count));
  if (ordinal >= static_cast<uint32_t>(count)) {
    throw std::runtime_error("there is no GPU " + std::to_string(ordinal) + ": the driver shows " +
                             std::to_string(count));
  }
  CUdevice device;
  SHUNT_DRIVER(cuDeviceGet(&device, static_cast<int>(ordinal)));
  return device;
}

std::string nvml_driver_version() {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (nvml == nullptr) return "";
  using Init = int (*)();
  using Version = int (*)(char*, unsigned int);
  const auto init = reinterpret_cast<Init>(dlsym(nvml, "nvmlInit_v2"));
  const auto version = reinterpret_cast<Version>(dlsym(nvml, "nvmlSystemGetDriverVersion"));
  const auto shutdown = reinterpret_cast<Init>(dlsym(nvml, "nvmlShutdown"));
  std::string result;
  if (init != nullptr && version != nullptr && init() == 0) {
    char text[80] = {};
    if (version(text, sizeof text) == 0) result = text;
    if (shutdown != nullptr) shutdown();
  }
  dlclose(nvml);
  return result;
}

}  // namespace

DriverError::DriverError(CUresult code, const char* call)
    : std::runtime_error(text_of(code, call)) {}

Stream make_stream() {
  CUstream stream;
  SHUNT_DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return Stream(stream);
}

Event make_event() {
  CUevent event;
  SHUNT_DRIVER(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return Event(event);
}

DeviceMemory allocate(uint64_t bytes) {
  CUdeviceptr pointer;
  SHUNT_DRIVER(cuMemAlloc(&pointer, bytes));
  return DeviceMemory(pointer);
}

GraphExec instantiate(Graph graph) {
  CUgraphExec exec;
  SHUNT_DRIVER(cuGraphInstantiateWithFlags(&exec, graph.get(), 0));
  return GraphExec(exec);
}

PrimaryContext::PrimaryContext(uint32_t ordinal) : device_(device_at(ordinal)) {
  SHUNT_DRIVER(cuDevicePrimaryCtxRetain(&context_, device_));
}

PrimaryContext::PrimaryContext(PrimaryContext&& other) noexcept
    : device_(other.device_), context_(std::exchange(other.context_, nullptr)) {}

PrimaryContext::~PrimaryContext() {
  if (context_ != nullptr) cuDevicePrimaryCtxRelease(device_);
}

void PrimaryContext::make_current() const { SHUNT_DRIVER(cuCtxSetCurrent(context_)); }

DriverFacts driver_facts() {
  DriverFacts facts;
  SHUNT_DRIVER(cuDriverGetVersion(&facts.cuda_version));
  facts.driver_version = nvml_driver_version();
  return facts;
}

std::string device_name(uint32_t ordinal) {
  char name[256] = {};
  SHUNT_DRIVER(cuDeviceGetName(name, sizeof name - 1, device_at(ordinal)));
  return name;
}

}  // namespace shunt::bench
