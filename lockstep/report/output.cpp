#include <lockstep/report/output.h>

#include <cerrno>

#include <lockstep/core/error.h>

namespace lockstep::report {

void flush_output(std::ostream& out) {
  errno = 0;
  out.flush();
  if (out) return;
  const int reason = errno;  // 0 if an earlier write failed
  throw DataError(
      str("cannot write to standard output", reason == 0 ? "" : ": " + errno_text(reason)));
}

}  // namespace lockstep::report
