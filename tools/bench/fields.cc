#include "tools/bench/fields.h"

#include <cstdio>
#include <stdexcept>

#include "tools/bench/text.h"

namespace shunt::bench {
namespace {

std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

double parse_real(const std::string& key, const std::string& text) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size()) {
    throw std::runtime_error("field " + key + "=" + text + " is not a number");
  }
  return value;
}

}  // namespace

Fields Fields::parse(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const std::vector<std::string> parts = split(line, '\t');
  Fields fields(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    const size_t equals = parts[i].find('=');
    if (equals == std::string::npos) {
      throw std::runtime_error("malformed message '" + std::string(line) + "'");
    }
    fields.values_[parts[i].substr(0, equals)] = parts[i].substr(equals + 1);
  }
  return fields;
}

std::string Fields::line() const {
  std::string text = kind_;
  for (const auto& [key, value] : values_) text.append("\t").append(key).append("=").append(value);
  return text.append("\n");
}

Fields& Fields::set(const std::string& key, std::string_view value) {
  std::string clean(value);
  for (char& c : clean) {
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  }
  values_[key] = clean;
  return *this;
}

Fields& Fields::set(const std::string& key, uint64_t value) {
  values_[key] = std::to_string(value);
  return *this;
}

Fields& Fields::set(const std::string& key, double value) {
  values_[key] = exact(value);
  return *this;
}

Fields& Fields::set(const std::string& key, const std::vector<double>& values) {
  std::vector<std::string> texts;
  for (const double value : values) texts.push_back(exact(value));
  values_[key] = join(texts, ",");
  return *this;
}

const std::string& Fields::text(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    throw std::runtime_error("message '" + kind_ + "' lacks the field " + key);
  }
  return found->second;
}

uint64_t Fields::number(const std::string& key) const { return parse_number(text(key)); }

double Fields::real(const std::string& key) const { return parse_real(key, text(key)); }

std::vector<double> Fields::reals(const std::string& key) const {
  std::vector<double> values;
  if (text(key).empty()) return values;
  for (const std::string& part : split(text(key), ',')) values.push_back(parse_real(key, part));
  return values;
}

}  // namespace shunt::bench
