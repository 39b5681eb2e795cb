// The commit of the sources that the program was built from; cmake/LockstepCommit.cmake writes the
// definition.
#pragma once

namespace lockstep {

/// The first 12 hexadecimal digits of the commit; empty if the sources were not in a Git
/// repository.
const char* build_commit();

}  // namespace lockstep
