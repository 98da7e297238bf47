// All pairs of fp16 and of bf16, added as the kernels of two ranks do and as those of more ranks do: the same
// bits, or a sum would depend on how a rank's buffer is aligned. Wants a GPU.
//   packed_sums_test FATBIN
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include "shim/engine/device.h"
#include "shim/engine/slab_set.h"

namespace shunt {
namespace {

struct Result {
  unsigned long long wrong;
  unsigned long long first;
};

bool compare(const GpuDevice& device, cu::Module module, const char* type) {
  const std::string name = std::string("packed_sums_") + type;
  cu::Function kernel = nullptr;
  SHUNT_CU(module_function, &kernel, module, name.c_str());
  PrivateStream stream(device);
  cu::Ptr memory = 0;
  SHUNT_CU(mem_alloc, &memory, sizeof(Result));
  SHUNT_CU(set32, memory, 0, sizeof(Result) / 4, stream.get());
  void* arguments[] = {&memory};
  SHUNT_CU(launch, kernel, 0x10000 / 128, 1, 1, 128, 1, 1, 0, stream.get(), arguments, nullptr);
  Result result{~0ull, 0};
  SHUNT_CU(copy_to_host, &result, memory, sizeof(result), stream.get());
  while (!stream.idle()) {
  }
  std::printf("%s: %llu of 4294967296 pairs differ", type, result.wrong);
  if (result.wrong != 0) {
    std::printf(", for instance %04llx + %04llx", (result.first - 1) >> 16, (result.first - 1) & 0xffff);
  }
  std::printf("\n");
  return result.wrong == 0;
}

int run(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  if (image.empty()) throw std::runtime_error(std::string("cannot read ") + path);
  const GpuDevice* device = nullptr;
  try {
    device = &gpu_device(0);
  } catch (const cu::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return 77;
  }
  cu::ContextScope current(device->context);
  cu::Module module = nullptr;
  SHUNT_CU(module_load, &module, image.data());
  const bool half = compare(*device, module, "half"), bfloat16 = compare(*device, module, "bfloat16");
  return half && bfloat16 ? 0 : 1;
}

}  // namespace
}  // namespace shunt

int main(int argc, char** argv) {
  try {
    if (argc == 2) return shunt::run(argv[1]);
    std::fprintf(stderr, "usage: packed_sums_test FATBIN\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 2;
}
