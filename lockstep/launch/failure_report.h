// What a failing rank tells its launcher through a pipe before it ends.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include <lockstep/core/clock.h>

namespace lockstep {

struct FailureReport {
  Clock::time_point when;  ///< The steady clock is one for all processes of a host.
  int exit_code = 1;
  /// A CommError: often the echo of another rank's failure.
  bool communication = false;
  std::string text;  ///< first_line() and what else what() says, as far as it fits
};

/// The report of an exception that is being handled.
FailureReport describe_failure(std::exception_ptr error);

/// Writes at most a pipe's capacity, so it never blocks on a pipe that nobody reads yet.
void send_report(int fd, const FailureReport& report);

/// Reads what was sent, without blocking. Nothing when the rank sent none or died while sending.
std::optional<FailureReport> receive_report(int fd);

}  // namespace lockstep
