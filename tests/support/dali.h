// Skips tests that need NVIDIA DALI if the test program was compiled without it. The tests'
// CMakeLists.txt sets LOCKSTEP_HAS_DALI.
#pragma once

#ifdef LOCKSTEP_HAS_DALI
#define LOCKSTEP_SKIP_WITHOUT_DALI
#else
#define LOCKSTEP_SKIP_WITHOUT_DALI                                             \
  GTEST_SKIP() << "needs DALI, which this test program was compiled without: " \
                  "run `make dali`, then `make gpu-kit` for a kit"
#endif
