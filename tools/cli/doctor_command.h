// `nccl-shunt doctor`: what one needs to know of a machine before anything is called a bug.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace shunt::cli {

class DoctorCommand {
 public:
  DoctorCommand(CLI::App& app, std::string commit);
  ~DoctorCommand();
  bool parsed() const;
  // 0: all well; 1: something is broken. Throws std::exception for what is no command line.
  int run() const;

 private:
  struct Options;
  CLI::App* app_;
  std::string commit_;
  std::unique_ptr<Options> options_;
};

}  // namespace shunt::cli
