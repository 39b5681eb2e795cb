// The program `lockstep`. Nothing here may start a thread or touch a tensor: `train` forks its
// ranks from this process.
#include <iostream>
#include <string>

#include <torch/version.h>

#include <lockstep/cli/commands.h>
#include <lockstep/cli/program.h>

int main(int argc, char** argv) {
  const std::string version = "lockstep " LOCKSTEP_VERSION " (LibTorch " TORCH_VERSION ")";
  return lockstep::run_program(argc, argv, version, lockstep::all_commands(), std::cout, std::cerr);
}
