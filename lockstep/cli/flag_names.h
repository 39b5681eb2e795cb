// The names that options of the library have on the command line. Errors and warnings of the
// library name options as in C++; the program replaces these names by its flags.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

struct FlagName {
  std::string_view option;  ///< in messages of the library: "LoaderOptions::engine"
  std::string_view flags;   ///< "--loader"
};

/// All options that appear in messages of the library and have a flag, the longest name first.
const std::vector<FlagName>& flag_names();

/// `text` with flags in place of the options in flag_names(). An option is replaced only if it is
/// not part of a longer name: neither in "x::LoaderOptions::engine" nor in
/// "LoaderOptions::engine_name".
std::string with_flags(std::string_view text);

/// The first line of the error (first_line()) with flags, as a command shows an error that it
/// catches.
std::string error_line(const std::exception& error);

/// From now on, the log goes to standard error with flags. Processes forked later inherit this.
void log_with_flags();

}  // namespace lockstep::cli
