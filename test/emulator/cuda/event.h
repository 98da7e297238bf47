// Events, under the driver's lock.
#pragma once

#include <memory>
#include <vector>

#include "work.h"

namespace emu {

struct Capture;
struct Context;
struct Node;

struct Event {
  Context& context;
  unsigned flags;
  WorkPtr work{};  // what an eager record marks; null: never recorded
  // The capture in which it was last recorded; stays after that capture's end, until recorded anew.
  std::shared_ptr<Capture> capture{};
  std::vector<Node*> captured{};
};

}  // namespace emu
