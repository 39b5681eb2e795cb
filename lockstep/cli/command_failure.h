// An error that ends the program with an exit code of its own instead of the one for its type.
#pragma once

#include <string>

#include <lockstep/core/error.h>
#include <lockstep/launch/launcher.h>

namespace lockstep::cli {

/// Thrown by a subcommand. what() is the one-line message; if empty, nothing is printed.
class CommandFailure : public Error {
 public:
  CommandFailure(int exit_code, const std::string& message, std::string details = "")
      : Error(message), exit_code_(exit_code), details_(std::move(details)) {}

  int exit_code() const { return exit_code_; }
  /// Shown under --debug instead of what(), if not empty.
  const std::string& details() const { return details_; }

 private:
  int exit_code_;
  std::string details_;
};

/// Throws CommandFailure unless all ranks succeeded.
inline void require_success(const LaunchResult& result) {
  if (!result.ok()) throw CommandFailure(result.exit_code, result.message, result.details);
}

}  // namespace lockstep::cli
