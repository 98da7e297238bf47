// One line of key=value fields, separated by tabs: what launcher and workers say to each other.
// Tabs and line ends inside a value become blanks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace shunt::bench {

class Fields {
 public:
  Fields() = default;
  explicit Fields(std::string_view kind) : kind_(kind) {}

  static Fields parse(std::string_view line);
  std::string line() const;  // ends with '\n'

  const std::string& kind() const { return kind_; }

  Fields& set(const std::string& key, std::string_view value);
  Fields& set(const std::string& key, uint64_t value);
  Fields& set(const std::string& key, double value);
  Fields& set(const std::string& key, const std::vector<double>& values);

  const std::map<std::string, std::string>& all() const { return values_; }
  bool has(const std::string& key) const { return values_.contains(key); }
  // All throw std::runtime_error when the key is missing or its value malformed.
  const std::string& text(const std::string& key) const;
  uint64_t number(const std::string& key) const;
  double real(const std::string& key) const;
  std::vector<double> reals(const std::string& key) const;

 private:
  std::string kind_;
  std::map<std::string, std::string> values_;
};

}  // namespace shunt::bench
