// Checks that output has actually been written.
#pragma once

#include <ostream>

namespace lockstep::report {

/// Flushes standard output or its substitute. Throws DataError, with the system's reason, if not
/// all output arrived, for instance because a disk is full or a pipe is closed.
void flush_output(std::ostream& out);

}  // namespace lockstep::report
