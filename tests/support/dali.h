// Skips tests that need NVIDIA DALI in a build without it. Their CMakeLists.txt sets the macro.
#pragma once

#ifdef LOCKSTEP_HAS_DALI
#define LOCKSTEP_SKIP_WITHOUT_DALI
#else
#define LOCKSTEP_SKIP_WITHOUT_DALI GTEST_SKIP() << "this build has no DALI: run `make dali`"
#endif
