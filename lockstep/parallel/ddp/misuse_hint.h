// Adds a hint about the likely cause to the group's errors in DistributedDataParallel.
#pragma once

#include <string>

#include <lockstep/core/error.h>

namespace lockstep {

inline std::string misuse_hint(const char* where) {
  return str("; DistributedDataParallel was ", where,
             ": do all ranks make the same steps? Ranks with different numbers of batches need "
             "Join, and no_sync(), "
             "hooks and statistics() are for all ranks alike");
}

/// Calls `function`, and adds the hint to a CommError or TimeoutError.
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

}  // namespace lockstep
