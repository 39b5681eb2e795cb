// The preparation of a rank before it touches a tensor.
#pragma once

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep {

/// Prepares this process to be `worker`: pins it to its share of the processors, prefixes its log
/// lines with its rank, and keeps glibc's malloc from returning memory to the kernel after every
/// training step. Returns the number of compute threads that the rank should use: `threads` if it
/// is positive, else its share of the processors, at least 1.
///
/// Under Slurm, Open MPI and PMI the process is not pinned, because they bind ranks by their own
/// rules. Call it before the first OpenMP region: threads inherit the processors of their creator.
int prepare_rank(const WorkerEnvironment& worker, int threads = 0);

/// As above, for rank `local_rank` of `local_world_size` ranks on this one host.
int prepare_rank(int local_rank, int local_world_size, int threads = 0);

/// The processors that the ranks of `worker`'s host may use together. Call it before
/// prepare_rank(), which leaves a rank its own share.
int processors_of_host(const WorkerEnvironment& worker);

}  // namespace lockstep
