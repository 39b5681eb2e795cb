// Lets OpenMP's threads sleep soon while they wait for each other.
//
// GCC's OpenMP, which LibTorch uses, lets a thread that waits occupy its processor for
// milliseconds. If another program needs that processor, the thread that is waited for stands still
// meanwhile, and a run of two threads can take thirty times as long. With short spins it is as fast
// on a quiet machine, and hardly suffers on a busy one. OpenMP reads GOMP_SPINCOUNT when it is
// loaded and cannot be told later. A command that computes therefore starts the program again,
// before LibTorch is initialised, which costs hundredths of a second.
#pragma once

namespace lockstep::cli {

/// Sets the variable for a program that this process is about to execute, unless the user has
/// chosen how threads wait (GOMP_SPINCOUNT or OMP_WAIT_POLICY).
void set_short_spins();

}  // namespace lockstep::cli
