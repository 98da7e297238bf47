// A bar on the terminal's last line, beside lines that stay.
#pragma once

#include <string>

namespace shunt::cli {

class ProgressBar {
 public:
  ProgressBar();
  void show(double part, const std::string& what);  // nothing where stderr is no terminal
  void line(const std::string& text);               // to stdout; ends with a line end
  void note(const std::string& text);               // to stderr
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace shunt::cli
