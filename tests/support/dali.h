// Tests that need NVIDIA DALI skip in a build without; their CMakeLists.txt says which it is.
#pragma once

#ifdef LOCKSTEP_HAS_DALI
#define LOCKSTEP_SKIP_WITHOUT_DALI
#else
#define LOCKSTEP_SKIP_WITHOUT_DALI GTEST_SKIP() << "this build has no DALI: run `make dali`"
#endif
