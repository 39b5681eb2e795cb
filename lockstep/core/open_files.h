// The number of files that this process may have open at once.
#pragma once

#include <string>

namespace lockstep {

/// Makes sure that this process may have `count` files open at once, if necessary by raising its
/// limit (RLIMIT_NOFILE) as far as the system allows. Throws a ConfigError that begins with `what`
/// if that is not enough. An early error is clearer than a later one from some library.
void require_open_files(int count, const std::string& what);

}  // namespace lockstep
