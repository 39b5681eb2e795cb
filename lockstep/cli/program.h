// Runs the `lockstep` program: parses the global options and the subcommand, and turns a failure
// into one line and an exit code.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lockstep::cli {

/// Adds one subcommand, whose callback does the work and may throw.
using AddCommand = void (*)(CLI::App&);

/// "lockstep 0.1.0 (commit 3d2b643a1f00, LibTorch 2.11.0)"; without the commit if it is empty.
std::string version_text(const std::string& version, const std::string& commit,
                         const std::string& libtorch);

/// Parses the arguments and runs the subcommand. Returns the exit code: 0 for success; 2 for bad
/// usage and ConfigError; CommandFailure's own code; 1 for any other error, including failure to
/// write to `out`. A failure prints one line, "error: ...", to `err`, or with --debug the error's
/// full text, including the backtrace. In both cases options are named by their flags
/// (flag_names.h).
int run_program(int argc, const char* const* argv, const std::string& version,
                const std::vector<AddCommand>& commands, std::ostream& out, std::ostream& err);

}  // namespace lockstep::cli
