#include "tools/doctor/report.h"

namespace shunt::doctor {

void Report::section(const std::string& title) {
  line("");
  line(title);
}

void Report::note(const std::string& text) {
  notes_.push_back(text);
  line("  note: " + text);
}

void Report::broken(const std::string& text) {
  broken_.push_back(text);
  line("  BROKEN: " + text);
}

void Report::end() {
  line("");
  if (broken_.empty()) {
    line("Nothing is broken.");
    return;
  }
  line(broken_.size() == 1 ? "One thing is broken:"
                           : std::to_string(broken_.size()) + " things are broken:");
  for (const std::string& text : broken_) line("  " + text);
}

std::string Report::json() const {
  nlohmann::ordered_json all = data;
  all["notes"] = notes_;
  all["broken"] = broken_;
  // Paths and settings of the environment need not be UTF-8.
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace shunt::doctor
