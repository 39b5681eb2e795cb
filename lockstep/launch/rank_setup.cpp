#include <lockstep/launch/rank_setup.h>

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <lockstep/core/cpu.h>
#include <lockstep/core/log.h>
#include <lockstep/core/measuring/gpu_usage.h>

namespace lockstep::launch {
namespace {

// A training step allocates and frees the same activations repeatedly. By default glibc returns
// them to the kernel and faults them in again: 600 to 1,265 page faults, 1 to 3 ms a step of the
// MNIST net. Therefore:
//   * Mappings are forbidden. Otherwise blocks above 32 MiB are mapped separately and returned at
//     once, whatever the threshold: ResNet-50 on 128 images of 128x128 takes 3.0 s a step instead
//     of 4.2 s. The heap's gaps between blocks of many sizes cost a third more memory.
//   * All threads share the one heap that can grow without bound. glibc's other heaps have parts of
//     64 MiB, map larger blocks, and unmap empty parts (two replicas on threads: 3.0 s instead of
//     3.6 s).
//   * The end of the heap is never returned: with a threshold of 1 GiB, below the activations of
//     that batch, every second run of ResNet-50 took 4.1 s a step.
void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

bool bound_by_scheduler(const WorkerEnvironment& worker) {
  return worker.source == "Slurm" || worker.source == "Open MPI" || worker.source == "PMI";
}

// A scheduler either binds each rank to processors of its own, or lets all ranks of the host share
// one set. If the machine has room for one such set per rank, the processors count as the rank's
// own.
bool has_own_processors(int visible, int local_world_size) {
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return static_cast<long>(visible) * local_world_size <= online;
}

int share_under_scheduler(int visible, int local_world_size) {
  return has_own_processors(visible, local_world_size) ? visible : visible / local_world_size;
}

// A rank that computes on a GPU of another socket would copy its batches over the link between the
// sockets.
std::vector<int> processors_of(const WorkerEnvironment& worker, const std::vector<int>& visible,
                               const std::vector<int>& gpus) {
  std::vector<std::vector<int>> near;
  for (const int gpu : gpus) {
    const std::vector<int> nearest = cpus_near_gpu(gpu);
    std::vector<int> usable;
    std::set_intersection(visible.begin(), visible.end(), nearest.begin(), nearest.end(),
                          std::back_inserter(usable));
    if (!usable.empty()) near.push_back(std::move(usable));
  }
  const bool all_are_known = static_cast<int>(near.size()) == worker.local_world_size;
  if (all_are_known) return cpus_of_rank(near, worker.local_rank);
  return cpus_of_rank(visible, worker.local_rank, worker.local_world_size);
}

}  // namespace

int prepare_rank(const WorkerEnvironment& worker, int threads, const std::vector<int>& gpus) {
  if (worker.world_size > 1) set_log_rank(worker.rank);
  keep_freed_memory();
  const std::vector<int> visible = available_cpus();
  int share = static_cast<int>(visible.size());
  if (bound_by_scheduler(worker)) {
    share = share_under_scheduler(share, worker.local_world_size);
  } else if (worker.local_world_size > 1) {
    const std::vector<int> mine = processors_of(worker, visible, gpus);
    share = static_cast<int>(mine.size());
    if (!pin_to_cpus(mine)) log_debug("cannot pin this rank to processors ", join(mine));
  }
  return threads > 0 ? threads : std::max(share, 1);
}

int processors_of_host(const WorkerEnvironment& worker) {
  const int visible = static_cast<int>(available_cpus().size());
  const bool own =
      bound_by_scheduler(worker) && has_own_processors(visible, worker.local_world_size);
  return own ? visible * worker.local_world_size : visible;
}

int prepare_rank(int local_rank, int local_world_size, int threads) {
  WorkerEnvironment worker;
  worker.rank = worker.local_rank = local_rank;
  worker.world_size = worker.local_world_size = local_world_size;
  return prepare_rank(worker, threads);
}

}  // namespace lockstep::launch
