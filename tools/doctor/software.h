// The libraries that jobs here would use, opened as they would open them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shunt::doctor {

struct VisibleGpu {
  std::string name;
  std::string bus_id;  // "0000:1a:00.0"
};

// What the CUDA driver shows to this process, CUDA_VISIBLE_DEVICES counted in.
struct Driver {
  std::string error;     // why there is none; empty: it works
  bool missing = false;  // the library is not there at all
  std::string file;
  int cuda_version = 0;  // 13000 for CUDA 13.0
  std::vector<VisibleGpu> gpus;
  std::vector<std::vector<bool>> peer_access;  // [a][b]: a may use b's memory
};
Driver open_driver();

struct Nccl {
  std::string error;  // why there is none
  std::string file;
  std::string version;  // "2.28.9"
};
// SHUNT_NCCL, else libnccl.so.2 as the dynamic linker finds it for this program.
Nccl open_nccl();

// Whether a program can be started with the library preloaded, and its second half opened. Empty:
// both; else why not.
std::string try_preload(const std::string& library, const std::string& ld_preload);

}  // namespace shunt::doctor
