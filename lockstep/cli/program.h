// The frame of the program: global options, subcommands, and failures as one line and an exit code.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep {

/// Adds one subcommand, whose callback does the work and throws what goes wrong.
using AddCommand = void (*)(CLI::App&);

/// Parses the arguments and runs the subcommand. Returns the exit code: 0; 2 for bad usage and
/// ConfigError; CommandFailure's own; 1 for any other error, also when `out` could not be written.
/// Failures print one line,
/// "error: ...", to `err`; with --debug an error's whole text, backtrace included.
int run_program(int argc, const char* const* argv, const std::string& version,
                const std::vector<AddCommand>& commands, std::ostream& out, std::ostream& err);

}  // namespace lockstep
