// A broken machine does not break twice: while the ranks of a communicator probe how their GPUs reach each
// other, a file in the user's cache says so. A machine that goes down leaves it behind, and after the next boot
// these GPUs are not probed in that way again until somebody deletes the file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/engine/verdict.h"

namespace shunt {

// What a file says.
struct ProbeRecord {
  std::string boot_id;
  Placement placement = Placement::kPush;
  std::vector<std::string> gpus;  // UUIDs in hex, in rank order
};
std::string record_text(const ProbeRecord& record);
// Nothing unless `text` is all of one: what else lies in the folder, or was cut off, says nothing.
std::optional<ProbeRecord> parse_record(std::string_view text);
ProbeRecord record_of(std::span<const Facts> facts, Placement placement);

// Whether `record` is of an earlier boot of a machine with two or more of these GPUs. A home folder may be
// shared with other machines: their GPUs tell them apart.
bool reset_while_probing(const ProbeRecord& record, std::span<const Facts> facts);

// $XDG_CACHE_HOME/nccl-shunt or ~/.cache/nccl-shunt; empty where there is neither, and in set-uid programs.
std::string marker_folder();

// From construction to destruction the file is there, and on disk before the constructor returns: what is in
// memory alone goes down with the machine. Without a folder that can be written it does nothing; never throws.
class ProbeMarker {
 public:
  ProbeMarker(const std::string& folder, const ProbeRecord& record) noexcept;
  ~ProbeMarker();
  ProbeMarker(const ProbeMarker&) = delete;
  ProbeMarker& operator=(const ProbeMarker&) = delete;

 private:
  void make(const std::string& folder, const ProbeRecord& record);

  int folder_ = -1;
  int file_ = -1;  // locked: tells a marker in use from one that a killed process has left
  std::string name_;
};

// What is refused for these GPUs. Deletes what killed processes have left since the last boot.
struct ProbeResets {
  uint32_t placements = 0;  // a bit each
  std::vector<std::string> files;  // that say so
};
std::string reset_text(const ProbeResets& resets);  // what happened and how to try again
ProbeResets find_probe_resets(const std::string& folder, std::span<const Facts> facts) noexcept;

}  // namespace shunt
