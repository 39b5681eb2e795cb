// The C library's fsync(), which file_test.cpp replaces in the program of these tests.
#pragma once

#include <functional>

namespace lockstep::testing_support {

/// Called instead of the kernel's fsync(), if it is set.
inline std::function<int(int fd)> on_fsync;

}  // namespace lockstep::testing_support
