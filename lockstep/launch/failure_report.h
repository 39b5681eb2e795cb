// The error that a failing rank sends to its launcher through a pipe before it ends.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include <lockstep/core/clock.h>

namespace lockstep::launch {

struct FailureReport {
  Clock::time_point when;  ///< All processes of a host share the steady clock.
  int exit_code = 1;
  /// Whether it is a CommError, which is often only a consequence of another rank's failure.
  bool communication = false;
  int interrupted_by = 0;  ///< the signal of Interrupted; 0 for every other exception
  std::string text;        ///< first_line() and the rest of what(), truncated to fit
};

/// The report for a caught exception.
FailureReport describe_failure(std::exception_ptr error);

/// Writes at most a pipe's capacity, so it never blocks on a pipe that is not being read yet.
void send_report(int fd, const FailureReport& report);

/// Reads a report without blocking. Returns nullopt if the rank sent none or died while sending.
std::optional<FailureReport> receive_report(int fd);

}  // namespace lockstep::launch
