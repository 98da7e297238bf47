#include "plugin/profile_guard.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace shunt::tuner {
namespace {

using Json = nlohmann::json;

// Every handler returns false to stop.
class Guard : public nlohmann::json_sax<Json> {
 public:
  std::string fault;

  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    fault = "the key \"" + printable(name, 40) + "\" appears twice";
    return false;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fault = "not JSON at byte " + std::to_string(position);
    return false;
  }

 private:
  static constexpr size_t kMostValues = 100000;
  static constexpr size_t kDeepest = 8;

  bool value() {
    if (++values_ <= kMostValues) return true;
    fault = "more than " + std::to_string(kMostValues) + " values";
    return false;
  }
  bool open() {
    keys_.emplace_back();
    if (keys_.size() <= kDeepest) return value();
    fault = "nested more than " + std::to_string(kDeepest) + " deep";
    return false;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  size_t values_ = 0;
  std::vector<std::set<std::string>> keys_;  // of the objects (and arrays) that are open
};

}  // namespace

std::string json_fault(std::string_view text) {
  Guard guard;
  if (Json::sax_parse(text.begin(), text.end(), &guard)) return "";
  return guard.fault.empty() ? "not JSON" : guard.fault;
}

std::string printable(std::string_view text, size_t most) {
  std::string out;
  for (const char c : text) {
    if (out.size() == most) return out + "...";
    out += c >= 0x20 && c <= 0x7e ? c : '?';
  }
  return out;
}

}  // namespace shunt::tuner
