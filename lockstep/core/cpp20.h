// Public headers include this one first. Below C++20 the compiler then reports a single clear
// error.
//
// After an #error, compilers continue and complain about every C++20 feature. The rest of such a
// header therefore stands between `#if LOCKSTEP_HAS_CPP20` and `#endif`.
#pragma once

#if __cplusplus >= 202002L
#define LOCKSTEP_HAS_CPP20 1
#else
#define LOCKSTEP_HAS_CPP20 0
#error "Lockstep needs C++20: compile with -std=c++20, or set CMAKE_CXX_STANDARD to 20"
#endif
