// The error family. Everything that Lockstep throws derives from lockstep::Error.
//
// Two kinds, told apart by type:
//   * what a program can meet and answer: ConfigError, DataError, CommError (with TimeoutError),
//     CheckpointError;
//   * what must not happen: InternalError, a broken invariant of ours, thrown by LOCKSTEP_CHECK.
// Messages are one line: what, where, got, expected, what to do. The library never exits and never
// prints; programs map an error to an exit code with exit_code().
#pragma once

#include <stdexcept>
#include <string>

#include <lockstep/core/strings.h>

namespace lockstep {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An option, argument or environment variable that cannot be used. Exit code 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A file of data that is missing, truncated, mislabelled or damaged; also a full disk.
class DataError : public Error {
 public:
  using Error::Error;
};

/// Communication between ranks failed: a peer died, disagreed or could not be reached.
class CommError : public Error {
 public:
  using Error::Error;
};

/// A wait reached its deadline.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

/// A checkpoint that cannot be read, written or applied.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A broken invariant: a defect of Lockstep, not of its input.
class InternalError : public Error {
 public:
  using Error::Error;
};

/// The exit code a program should end with: 2 for ConfigError, else 1.
int exit_code(const std::exception& error);

/// One line for people, never empty: what() without the backtrace that LibTorch appends to it.
std::string first_line(const std::exception& error);

/// Text of an errno value, as strerror gives it, safe to call from any thread.
std::string errno_text(int error_number);

[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition,
                                       const std::string& message);

}  // namespace lockstep

/// Throws InternalError unless `condition` holds; the further arguments are streamed into the
/// message.
#define LOCKSTEP_CHECK(condition, ...)                                 \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::lockstep::throw_internal_error(__FILE__, __LINE__, #condition, \
                                       ::lockstep::str(__VA_ARGS__));  \
    }                                                                  \
  } while (false)
