// The error family. Everything that Lockstep throws derives from lockstep::Error.
//
// There are two kinds, distinguished by type:
//   * errors that a program can expect and handle: ConfigError, DataError, CommError (with
//     TimeoutError), CheckpointError;
//   * errors that must not occur: InternalError, a broken invariant of Lockstep, thrown by
//     LOCKSTEP_CHECK.
// Messages are one line: what happened, where, the actual value, the expected one, what to do. The
// library never exits and never prints; programs map an error to an exit code with exit_code().
#pragma once

#include <stdexcept>
#include <string>

#include <lockstep/core/export.h>
#include <lockstep/core/strings.h>

namespace lockstep {

class LOCKSTEP_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An option, argument or environment variable that cannot be used. Exit code 2.
class LOCKSTEP_API ConfigError : public Error {
 public:
  using Error::Error;
};

/// A file of data that is missing, truncated, mislabelled or damaged; also a full disk.
class LOCKSTEP_API DataError : public Error {
 public:
  using Error::Error;
};

/// Communication between ranks failed: a peer died, disagreed or could not be reached.
class LOCKSTEP_API CommError : public Error {
 public:
  using Error::Error;
};

/// A wait reached its deadline.
class LOCKSTEP_API TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

/// A checkpoint that cannot be read, written or applied.
class LOCKSTEP_API CheckpointError : public Error {
 public:
  using Error::Error;
};

/// A broken invariant: a defect of Lockstep, not of its input.
class LOCKSTEP_API InternalError : public Error {
 public:
  using Error::Error;
};

/// The exit code for a program: 2 for ConfigError, else 1.
LOCKSTEP_API int exit_code(const std::exception& error);

/// The error as one line for a user, never empty: what() without LibTorch's backtrace.
LOCKSTEP_API std::string first_line(const std::exception& error);
/// The text for an exception that is caught as `...`.
inline constexpr const char* kForeignException = "an exception not derived from std::exception";

/// The text of an errno value, like strerror, but thread-safe.
LOCKSTEP_API std::string errno_text(int error_number);

[[noreturn]] LOCKSTEP_API void throw_internal_error(const char* file, int line,
                                                    const char* condition,
                                                    const std::string& message);

}  // namespace lockstep

/// Throws an InternalError unless `condition` holds. The further arguments are streamed into the
/// message.
#define LOCKSTEP_CHECK(condition, ...)                                 \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      ::lockstep::throw_internal_error(__FILE__, __LINE__, #condition, \
                                       ::lockstep::str(__VA_ARGS__));  \
    }                                                                  \
  } while (false)
