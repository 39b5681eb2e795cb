// Where the modules are that the program loads when it first needs them.
#pragma once

#include <string>

namespace lockstep {

/// What dlopen() should be given for the module `name`: its path where it lies in
/// LOCKSTEP_MODULE_DIR or beside the program (a build tree), else `name` alone, which the system's
/// loader looks for in the run path of the program: our package adds its own folder to that of
/// every program linked to it.
std::string module_file(const std::string& name);

}  // namespace lockstep
