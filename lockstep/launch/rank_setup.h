// Prepares the process of a rank before it creates its first tensor.
#pragma once

#include <vector>

#include <lockstep/comm/rendezvous/worker_environment.h>

namespace lockstep::launch {

/// Prepares this process to be `worker`: pins it to its share of the processors, prefixes its log
/// lines with its rank, and keeps glibc's malloc from returning memory to the kernel after every
/// training step. If the ranks of this host compute on one GPU each, `gpus[r]` is that of local
/// rank r, and a rank's processors are among those that are nearest to its GPU. Returns the number
/// of compute threads that the rank should use: `threads` if it is positive, otherwise the rank's
/// share of the processors, at least 1.
///
/// Under Slurm, Open MPI and PMI the process is not pinned, because these launchers bind ranks
/// themselves. Call it before the first OpenMP region: threads inherit the CPU affinity of the
/// thread that creates them.
int prepare_rank(const WorkerEnvironment& worker, int threads = 0,
                 const std::vector<int>& gpus = {});

/// Likewise, for rank `local_rank` of a group of `local_world_size` ranks that are all on this
/// host.
int prepare_rank(int local_rank, int local_world_size, int threads = 0);

/// The number of processors that all ranks on `worker`'s host may use together. Call it before
/// prepare_rank(), which restricts this process to its own share.
int processors_of_host(const WorkerEnvironment& worker);

}  // namespace lockstep::launch
