// Translates Lockstep's errors into PyTorch's, which have Python equivalents. Their texts have one
// line.
#pragma once

#include <exception>
#include <string>

#include <c10/util/Exception.h>

#include <lockstep/core/error.h>

namespace lockstep_c10d {

/// The text of an error, preceded by Gloo's words for this kind of error if there are any. Scripts
/// written for Gloo search for these words, in some cases with a blank on either side.
inline std::string in_words_of_gloo(const lockstep::CommError& error) {
  const std::string text = lockstep::first_line(error);
  if (dynamic_cast<const lockstep::TimeoutError*>(&error) != nullptr) {
    return (text.starts_with("Timed out") ? "lockstep: " : "lockstep: Timed out waiting: ") + text;
  }
  // The end of a peer has no error type of its own, so it is recognized by the text.
  const bool has_gone =
      text.find(" died") != std::string::npos || text.find(" left the group") != std::string::npos;
  return has_gone ? "lockstep: Connection closed by peer: " + text : text;
}

/// Rethrows the exception that is being handled: a ConfigError as ValueError, and any other error
/// as torch.distributed.DistBackendError. LibTorch's own exceptions are rethrown unchanged.
[[noreturn]] inline void throw_for_python() {
  try {
    throw;
  } catch (const c10::Error&) {
    throw;
  } catch (const lockstep::ConfigError& error) {
    C10_THROW_ERROR(ValueError, lockstep::first_line(error));
  } catch (const lockstep::CommError& error) {
    C10_THROW_ERROR(DistBackendError, in_words_of_gloo(error));
  } catch (const std::exception& error) {
    C10_THROW_ERROR(DistBackendError, lockstep::first_line(error));
  }
}

/// The exception that throw_for_python() would throw for `error`.
inline std::exception_ptr for_python(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    try {
      std::rethrow_exception(error);
    } catch (...) {
      throw_for_python();
    }
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace lockstep_c10d
