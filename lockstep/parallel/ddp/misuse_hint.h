// Adds a hint about the likely cause to the errors that a process group throws inside
// DistributedDataParallel.
#pragma once

#include <string>

#include <lockstep/core/error.h>

namespace lockstep::parallel {

inline std::string misuse_hint(const char* where) {
  return str(
      "; DistributedDataParallel was ", where,
      ". All ranks must make the same steps and call no_sync(), hooks and statistics() at the "
      "same points; ranks with different numbers of batches need Join");
}

/// Calls `function`. If it throws a CommError or TimeoutError, adds the hint to the message.
/// `where` says what DistributedDataParallel was doing.
template <class Function>
void with_hint(const char* where, Function&& function) {
  try {
    function();
  } catch (const TimeoutError& error) {
    throw TimeoutError(error.what() + misuse_hint(where));
  } catch (const CommError& error) {
    throw CommError(error.what() + misuse_hint(where));
  }
}

}  // namespace lockstep::parallel
