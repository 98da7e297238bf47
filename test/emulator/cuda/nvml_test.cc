// The NVML stand-in knows the same GPUs as the driver.
#include <cstdio>
#include <string>

#include "test_support.h"

extern "C" {
int nvmlInit_v2();
int nvmlShutdown();
int nvmlDeviceGetCount_v2(unsigned*);
int nvmlDeviceGetHandleByUUID(const char*, void**);
int nvmlDeviceGetP2PStatus(void*, void*, int, int*);
}

namespace {

std::string uuid_text(int device) {
  CUuuid uuid{};
  CU(cuDeviceGetUuid(&uuid, device));
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i] & 0xff);
    text += digits;
    if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
  }
  return text;
}

int nvlink_status(int first, int second) {
  void *a = nullptr, *b = nullptr;
  REQUIRE(nvmlDeviceGetHandleByUUID(uuid_text(first).c_str(), &a) == 0);
  REQUIRE(nvmlDeviceGetHandleByUUID(uuid_text(second).c_str(), &b) == 0);
  int status = -1;
  REQUIRE(nvmlDeviceGetP2PStatus(a, b, 2, &status) == 0);
  return status;
}

}  // namespace

TEST_CASE("case: nvlink pairs", "[.]") {
  CU(cuInit(0));
  REQUIRE(nvmlInit_v2() == 0);
  CHECK(nvlink_status(0, 1) == 0);
  CHECK(nvlink_status(1, 0) == 0);
  CHECK(nvlink_status(2, 3) == 0);
  CHECK(nvlink_status(1, 2) == 5);
  REQUIRE(nvmlShutdown() == 0);
}

TEST_CASE("NVML knows the driver's GPUs") {
  CU(cuInit(0));
  unsigned count = 0;
  REQUIRE(nvmlDeviceGetCount_v2(&count) == 1);  // not initialized
  REQUIRE(nvmlInit_v2() == 0);
  REQUIRE(nvmlDeviceGetCount_v2(&count) == 0);
  REQUIRE(count == 8);
  CHECK(nvlink_status(0, 1) == 5);
  REQUIRE(nvmlShutdown() == 0);
  CHECK(emu_test::run_case("case: nvlink pairs", {"EMU_NVLINK=0-1,2-3"}).status == 0);
}
