// Which commit of the sources the program was built from; cmake/LockstepCommit.cmake writes the
// source.
#pragma once

namespace lockstep {

/// The first 12 hexadecimal digits of the commit; empty if the sources were in no Git repository.
const char* build_commit();

}  // namespace lockstep
