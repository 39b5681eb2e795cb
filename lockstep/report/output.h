// Output that fails must not pass for output that was read.
#pragma once

#include <ostream>

namespace lockstep {

/// Flushes standard output, or what stands for it. DataError, with the system's reason, when not
/// everything that was written arrived: a full disk, a reader that went away.
void flush_output(std::ostream& out);

}  // namespace lockstep
