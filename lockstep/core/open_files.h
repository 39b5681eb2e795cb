// How many files this process may have open at once.
#pragma once

#include <string>

namespace lockstep {

/// Makes sure that this process may have `count` files open at once: raises its own limit
/// (RLIMIT_NOFILE) as far as the system lets it. ConfigError, which begins with `what`, where that
/// is not enough. Better told now than by whichever library runs out of them first.
void require_open_files(int count, const std::string& what);

}  // namespace lockstep
