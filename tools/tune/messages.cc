#include "tools/tune/messages.h"

#include <stdexcept>

namespace shunt::tune {
namespace {

using bench::Fields;

// A wish as numbers; +1, for numbers have no sign here.
void put(Fields& fields, const std::string& name, const Wish& wish) {
  fields.set(name + "_algorithm", static_cast<uint64_t>(wish.algorithm + 1))
      .set(name + "_protocol", static_cast<uint64_t>(wish.protocol + 1))
      .set(name + "_channels", static_cast<uint64_t>(wish.channels));
}

Wish wish_from(const Fields& fields, const std::string& name) {
  const auto number = [&](const char* part) {
    const uint64_t value = fields.number(name + part);
    if (value > 1000) throw std::runtime_error("malformed message: " + name + part);
    return static_cast<int>(value);
  };
  return {number("_algorithm") - 1, number("_protocol") - 1, number("_channels")};
}

uint32_t small(const Fields& fields, const char* name) {
  const uint64_t value = fields.number(name);
  if (value > 1'000'000) throw std::runtime_error(std::string("malformed message: ") + name);
  return static_cast<uint32_t>(value);
}

}  // namespace

Fields to_fields(const Try& t) {
  Fields fields("try");
  fields.set("collective", static_cast<uint64_t>(t.collective))
      .set("bytes", t.bytes)
      .set("calls", uint64_t{t.calls})
      .set("warmups", uint64_t{t.warmups})
      .set("replays", uint64_t{t.replays})
      .set("unsafe", uint64_t{t.unsafe});
  put(fields, "wish", t.wish);
  return fields;
}

Try try_from(const Fields& fields) {
  Try t;
  const uint32_t collective = small(fields, "collective");
  t.collective = static_cast<Collective>(collective);
  if (std::string(name_of(t.collective)) == "?") throw std::runtime_error("unknown collective");
  t.bytes = fields.number("bytes");
  t.wish = wish_from(fields, "wish");
  t.calls = small(fields, "calls");
  t.warmups = small(fields, "warmups");
  t.replays = small(fields, "replays");
  t.unsafe = fields.number("unsafe") != 0;
  return t;
}

Fields to_fields(const Tried& tried) {
  Fields fields("tried");
  fields.set("rank", uint64_t{tried.rank})
      .set("status", static_cast<uint64_t>(tried.status))
      .set("us", tried.us)
      .set("problem", tried.problem)
      .set("allowed", tried.allowed);
  put(fields, "cheapest", tried.cheapest);
  return fields;
}

Tried tried_from(const Fields& fields) {
  Tried tried;
  tried.rank = small(fields, "rank");
  const uint64_t status = fields.number("status");
  if (status > static_cast<uint64_t>(Status::kUnasked)) throw std::runtime_error("unknown status");
  tried.status = static_cast<Status>(status);
  tried.us = fields.reals("us");
  tried.problem = fields.text("problem");
  tried.cheapest = wish_from(fields, "cheapest");
  tried.allowed = fields.number("allowed");
  return tried;
}

}  // namespace shunt::tune
