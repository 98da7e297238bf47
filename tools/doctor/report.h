// What `nccl-shunt doctor` says: lines for people as it finds them, and everything for programs.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace shunt::doctor {

class Report {
 public:
  // `print` gets each line as soon as it is known, without its end.
  explicit Report(std::function<void(const std::string&)> print) : print_(std::move(print)) {}

  void section(const std::string& title);
  void fine(const std::string& text) { line("  " + text); }
  void note(const std::string& text);    // worth knowing; nothing is broken by it
  void broken(const std::string& text);  // makes the exit status 1
  void end();                            // repeats what is broken

  // What was found, for programs; add to it freely.
  nlohmann::ordered_json data = nlohmann::ordered_json::object();

  const std::vector<std::string>& all_broken() const { return broken_; }
  std::string json() const;  // `data`, and the lists "broken" and "notes"

 private:
  void line(const std::string& text) { print_(text); }
  std::function<void(const std::string&)> print_;
  std::vector<std::string> broken_, notes_;
};

}  // namespace shunt::doctor
