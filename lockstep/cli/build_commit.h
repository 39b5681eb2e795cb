// The commit of the sources that the program was built from. cmake/LockstepCommit.cmake generates
// the source file that defines build_commit().
#pragma once

namespace lockstep::cli {

/// The first 12 hexadecimal digits of the commit, from Git or from the file COMMIT of a source
/// archive; empty if neither is available.
const char* build_commit();

}  // namespace lockstep::cli
