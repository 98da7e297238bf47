// What one run is asked to do and what came of it. The only face of the code that depends on the
// product's protocol: the negative controls compile what lies behind it anew, against a broken
// copy.
#pragma once

#include <string>

#include "test/protocol/machine.h"

namespace sim {

struct Options {
  std::string program = "mixed";   // see programs.cc
  uint32_t calls = 40;             // of one run
  uint32_t cap = 0;                // largest message in bytes; 0: drawn
  uint32_t max_lanes = 0;          // likewise
  std::string types = "all";       // all, flagged, sentinel or the name of one
  bool aligned = false;            // all buffers at 16-byte addresses
  std::string placement = "any";   // any: push or pull, drawn; or the name of one
  std::string shots = "any";       // one, two, or drawn
};

struct Outcome {
  Failure failure = Failure::kNone;
  std::string text;
  uint64_t calls = 0;  // that ended, on any rank
  uint64_t turns = 0;
};

bool is_program(const std::string& name);
// Pure: the same arguments give the same outcome.
Outcome run_program(const Options& options, uint32_t ranks, uint64_t seed);

}  // namespace sim
