// The locations of the modules that the program loads on first use.
#pragma once

#include <string>

namespace lockstep {

/// The argument of dlopen() for the module `name`: its path if it is in LOCKSTEP_MODULE_DIR or
/// beside the program (as in a build tree), otherwise `name` alone. In that case the system's
/// loader searches the run path of the program, to which our CMake package adds its own folder.
std::string module_file(const std::string& name);

}  // namespace lockstep
