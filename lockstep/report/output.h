// Checks that output has really been written.
#pragma once

#include <ostream>

namespace lockstep::report {

/// Flushes standard output or its substitute. DataError, with the system's reason, if not all
/// output arrived, for instance on a full disk or a closed pipe.
void flush_output(std::ostream& out);

}  // namespace lockstep::report
