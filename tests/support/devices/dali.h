// Skips tests that need NVIDIA DALI if the test program was compiled without it (the tests'
// CMakeLists.txt sets LOCKSTEP_HAS_DALI), or if this machine has none: tools/gpu/run.py, which may
// run on any machine, then sets LOCKSTEP_TEST_WITHOUT_DALI.
#pragma once

#include <cstdlib>

#ifdef LOCKSTEP_HAS_DALI
#define LOCKSTEP_SKIP_WITHOUT_DALI                          \
  if (std::getenv("LOCKSTEP_TEST_WITHOUT_DALI") != nullptr) \
  GTEST_SKIP() << "needs DALI in the Python whose torch the tests use"
#else
#define LOCKSTEP_SKIP_WITHOUT_DALI                                             \
  GTEST_SKIP() << "needs DALI, which this test program was compiled without: " \
                  "run `make dali`, then `make gpu-kit` for a kit"
#endif
