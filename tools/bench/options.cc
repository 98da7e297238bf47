#include "tools/bench/options.h"

#include <stdexcept>
#include <string_view>

#include "tools/bench/text.h"

namespace shunt::bench {
namespace {

template <typename Value>
struct Word {
  std::string_view word;
  Value value;
};

constexpr Word<DataType> kTypeAliases[] = {
    {"fp16", DataType::kFloat16},    {"float16", DataType::kFloat16},
    {"fp32", DataType::kFloat32},    {"float32", DataType::kFloat32},
    {"fp64", DataType::kFloat64},    {"float64", DataType::kFloat64},
    {"bf16", DataType::kBfloat16},   {"e4m3", DataType::kFloat8e4m3},
    {"e5m2", DataType::kFloat8e5m2},
};
constexpr Word<Place> kPlaces[] = {{"out", Place::kOutOfPlace}, {"in", Place::kInPlace}};
constexpr Word<Mode> kModes[] = {{"eager", Mode::kEager}, {"graph", Mode::kGraph}};

template <typename Value, size_t n>
std::vector<Value> parse_words(const std::string& text, const Word<Value> (&words)[n],
                               const char* what) {
  std::vector<Value> values;
  for (const std::string& part : split(text, ',')) {
    const size_t before = values.size();
    for (const auto& [word, value] : words) {
      if (part == word) values.push_back(value);
    }
    if (values.size() == before) throw std::invalid_argument("'" + part + "' is not " + what);
  }
  return values;
}

// Lists travel as numbers: "7,9".
template <typename Value>
std::string list_text(const std::vector<Value>& values) {
  std::vector<std::string> texts;
  for (const Value& value : values) texts.push_back(std::to_string(static_cast<uint64_t>(value)));
  return join(texts, ",");
}

template <typename Value>
std::vector<Value> list_from(const std::string& text) {
  std::vector<Value> values;
  if (text.empty()) return values;
  for (const std::string& part : split(text, ',')) {
    values.push_back(static_cast<Value>(parse_number(part)));
  }
  return values;
}

}  // namespace

const char* name_of(Launch launch) {
  constexpr const char* kNames[] = {"processes", "threads", "one-thread"};
  return kNames[static_cast<uint32_t>(launch)];
}
const char* name_of(Mode mode) { return mode == Mode::kEager ? "eager" : "graph"; }
const char* name_of(Place place) { return place == Place::kInPlace ? "in" : "out"; }
const char* name_of(Data data) { return data == Data::kExact ? "exact" : "random"; }

std::vector<DataType> parse_types(const std::string& comma_separated) {
  std::vector<DataType> types;
  for (const std::string& part : split(comma_separated, ',')) {
    const size_t before = types.size();
    for (uint32_t i = 0; i < kDataTypes; ++i) {
      const auto type = static_cast<DataType>(i);
      if (part == shunt::name_of(type) || part == "all") types.push_back(type);
    }
    for (const auto& [word, type] : kTypeAliases) {
      if (part == word) types.push_back(type);
    }
    if (types.size() == before) throw std::invalid_argument("'" + part + "' is not a datatype");
  }
  return types;
}

std::vector<ReduceOp> parse_ops(const std::string& comma_separated) {
  std::vector<ReduceOp> ops;
  for (const std::string& part : split(comma_separated, ',')) {
    const size_t before = ops.size();
    for (uint32_t i = 0; i < kReduceOps; ++i) {
      const auto op = static_cast<ReduceOp>(i);
      if (part == shunt::name_of(op) || part == "all") ops.push_back(op);
    }
    if (ops.size() == before) throw std::invalid_argument("'" + part + "' is not an operation");
  }
  return ops;
}

std::vector<Place> parse_places(const std::string& comma_separated) {
  return parse_words(comma_separated, kPlaces, "a place (out, in)");
}

std::vector<Mode> parse_modes(const std::string& comma_separated) {
  return parse_words(comma_separated, kModes, "a mode (eager, graph)");
}

void validate(const Options& options) {
  if (options.ranks == 0 || options.ranks > kMaxRanks) {
    throw std::invalid_argument("--ranks must be 1 to " + std::to_string(kMaxRanks));
  }
  if (!options.devices.empty() && options.devices.size() != options.ranks) {
    throw std::invalid_argument("--devices must name one GPU for each of the " +
                                std::to_string(options.ranks) + " ranks");
  }
  if (options.sizes.empty()) throw std::invalid_argument("no sizes");
  if (!options.check && !options.time) {
    throw std::invalid_argument("--no-check and --no-time together leave nothing to do");
  }
  if (options.check && options.iterations == 0)
    throw std::invalid_argument("--iters must be above 0");
  if (options.time &&
      (options.graph_calls == 0 || options.replays == 0 || options.eager_calls == 0)) {
    throw std::invalid_argument("--graph-calls, --replays and --eager-calls must be above 0");
  }
}

Fields to_fields(const Options& o) {
  Fields fields("options");
  std::vector<std::string> sizes;
  for (const Size& size : o.sizes) sizes.push_back(to_text(size));
  fields.set("sizes", join(sizes, ","))
      .set("ranks", uint64_t{o.ranks})
      .set("devices", list_text(o.devices))
      .set("launch", static_cast<uint64_t>(o.launch))
      .set("types", list_text(o.types))
      .set("ops", list_text(o.ops))
      .set("places", list_text(o.places))
      .set("modes", list_text(o.modes))
      .set("check", uint64_t{o.check})
      .set("iterations", uint64_t{o.iterations})
      .set("data", static_cast<uint64_t>(o.data))
      .set("seed", o.seed)
      .set("misalign", uint64_t{o.misalign})
      .set("time", uint64_t{o.time})
      .set("graph_calls", uint64_t{o.graph_calls})
      .set("warmups", uint64_t{o.warmups})
      .set("replays", uint64_t{o.replays})
      .set("eager_calls", uint64_t{o.eager_calls})
      .set("alternate", uint64_t{o.alternate})
      .set("cold_bytes", o.cold_bytes);
  if (o.expect_shunted_up_to) fields.set("expect_shunted_up_to", *o.expect_shunted_up_to);
  return fields;
}

Options options_from(const Fields& fields) {
  const auto small = [&](const char* key) { return static_cast<uint32_t>(fields.number(key)); };
  Options o;
  o.sizes = parse_sizes(fields.text("sizes"));
  o.ranks = small("ranks");
  o.devices = list_from<uint32_t>(fields.text("devices"));
  o.launch = static_cast<Launch>(fields.number("launch"));
  o.types = list_from<DataType>(fields.text("types"));
  o.ops = list_from<ReduceOp>(fields.text("ops"));
  o.places = list_from<Place>(fields.text("places"));
  o.modes = list_from<Mode>(fields.text("modes"));
  o.check = fields.number("check") != 0;
  o.iterations = small("iterations");
  o.data = static_cast<Data>(fields.number("data"));
  o.seed = fields.number("seed");
  o.misalign = fields.number("misalign") != 0;
  o.time = fields.number("time") != 0;
  o.graph_calls = small("graph_calls");
  o.warmups = small("warmups");
  o.replays = small("replays");
  o.eager_calls = small("eager_calls");
  o.alternate = fields.number("alternate") != 0;
  o.cold_bytes = fields.number("cold_bytes");
  if (fields.has("expect_shunted_up_to")) {
    o.expect_shunted_up_to = fields.number("expect_shunted_up_to");
  }
  return o;
}

}  // namespace shunt::bench
