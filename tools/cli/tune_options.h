// The command line of `nccl-shunt tune`.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace shunt::cli {

class TuneOptions {
 public:
  TuneOptions(CLI::App& app, std::string commit);
  ~TuneOptions();
  bool parsed() const;
  // Does what the command line says; returns the exit status.
  int run() const;

 private:
  struct Texts;
  CLI::App* app_;
  std::string commit_;
  std::unique_ptr<Texts> texts_;
};

}  // namespace shunt::cli
